"""Graph -> Plan.

A plan is a list of steps in an order that can run: groups (one generated kernel each), calls of
PyTorch, and the folds that the steps read. A group has an iteration space of `rows` by `width`: the
last axis is the width, the axes before it are the rows. Three templates compute groups:

- MATMUL: the product of rows of x with a weight; its epilogue is pointwise; its values are stored,
  reduced along each row, or reduced down each column.
- ROWS: passes over each row; a pass may use what the passes before it have reduced.
- COLUMNS: a reduction over the rows for each column of each outer slice.

Grouping is greedy in topological order: a node joins the group of the last of its inputs where
that makes no cycle and the template can compute it, else it opens a group of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from refold.ir import OPS, Dim, Graph, Kind, Node, Output, hint, numel
from refold.ir.graph import is_computed, is_parametric, topological
from refold.plan.lower import lower


class Template(enum.Enum):
    MATMUL = "matmul"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(frozen=True)
class Fold:
    """A folded parameter: computed from parameters alone, cached until one of them changes."""

    name: str
    node: Node
    sources: tuple[Node, ...]


@dataclass(frozen=True)
class Group:
    """One generated kernel.

    dims: the iteration space, rank 4; the last is the width. (COLUMNS reduces over `dims[-2]`.)
    nodes: what it computes, inputs first. inputs: values made elsewhere. outputs: values that
    others read, in the order of nodes.
    """

    name: str
    template: Template
    dims: tuple[Dim, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    def __post_init__(self) -> None:
        if self.template is Template.MATMUL:
            beside = [n for n in self.outputs if n.shape == self.dims and n is not self.value]
            assert not beside, f"{self.name} stores one value; {beside} would be read too"

    @property
    def rows(self) -> Dim:
        return numel(self.dims[:-1])

    @property
    def width(self) -> Dim:
        return self.dims[-1]

    @property
    def product(self) -> Node:
        return next(n for n in self.nodes if n.op == "linear")

    @property
    def value(self) -> Node:
        """MATMUL: the epilogue's result, the one value that is stored and reduced."""
        full = [n for n in self.nodes if OPS[n.op].kind is not Kind.REDUCE and n.shape == self.dims]
        return full[-1]

    @property
    def reductions(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if OPS[n.op].kind is Kind.REDUCE)


@dataclass(frozen=True)
class Call:
    """One op computed by PyTorch (a view, a batched product, an opaque call)."""

    node: Node


Step = Group | Call


@dataclass(frozen=True)
class Plan:
    graph: Graph
    folds: tuple[Fold, ...]
    steps: tuple[Step, ...]

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.graph.outputs

    @property
    def groups(self) -> list[Group]:
        return [s for s in self.steps if isinstance(s, Group)]


@dataclass(eq=False)
class _Draft:
    """A group while it grows."""

    template: Template
    dims: tuple[Dim, ...]
    nodes: list[Node] = field(default_factory=list)

    def inputs(self) -> list[Node]:
        inside = set(self.nodes)
        found: dict[Node, None] = {}
        for n in self.nodes:
            for i in n.inputs:
                if i not in inside:
                    found.setdefault(i)
        return list(found)


def make_plan(graph: Graph) -> Plan:
    """Choose folds and groups for a graph."""
    return _Planner(lower(graph)).plan()


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = graph.nodes()
        self.parametric: dict[Node, bool] = {}
        for node in self.order:
            is_parametric(node, self.parametric)
        self.owner: dict[Node, _Draft] = {}
        self.drafts: list[_Draft] = []
        self.roots = set(graph.roots())
        self.readers: dict[Node, list[Node]] = {}
        for node in self.order:
            for i in node.inputs:
                self.readers.setdefault(i, []).append(node)

    def plan(self) -> Plan:
        dynamic = [n for n in self.order if not self.parametric[n] and is_computed(n)]
        for node in dynamic:
            self._place(node)
        self._absorb_pointwise_into_columns()
        folds = self._folds()
        return Plan(self.graph, folds, tuple(self._ordered()))

    # --- grouping -------------------------------------------------------------------------------
    def _place(self, node: Node) -> None:
        if node in self.owner:
            return  # in the epilogue of a product
        kind = OPS[node.op].kind
        # a comparison is computed where its mask is read, never stored
        if node.dtype != torch.float32 or any(i.dtype != torch.float32 for i in _values_read(node)):
            return
        if node.op == "linear":
            self._open_product(node)
        elif kind is Kind.POINTWISE and OPS[node.op].cpp is not None:
            self._join(node, node.shape)
        elif kind is Kind.REDUCE and node.op != "prod":
            x = node.inputs[0]
            if node["axes"] == (-1,):
                self._join(node, x.shape)
            elif _leading(node["axes"], x.shape):
                self._place_column_reduction(node, x)

    def _open_product(self, node: Node) -> None:
        x, w = node.inputs
        if any(d != 1 for d in w.shape[:-2]):
            return  # a batched product: PyTorch's
        if w.shape[-2] == 1:
            # one output feature: a reduction of x * w along each row
            self._add(self._new(Template.ROWS, x.shape), node)
            return
        draft = self._new(Template.MATMUL, node.shape)
        for n in self._epilogue(node):
            self._add(draft, n)

    def _epilogue(self, product: Node) -> list[Node]:
        """The product and what follows it up to one value, the only one that others read.

        The region grows over pointwise readers; of the values that are read outside it the first
        stays, and what comes after that belongs to other groups.
        """
        region: dict[Node, None] = {product: None}
        for n in self.order:
            if n in region or not self._pointwise(n) or n.shape != product.shape:
                continue
            values = _values_read(n)
            inner = [i for i in values if i in region]
            if not inner or not self._addressable(values, product.shape):
                continue
            if any(self._reaches(i, region) for i in values if i not in region):
                continue
            region.setdefault(n)
        exits = [n for n in region if self._read_outside(n, region)]
        while len(exits) > 1:  # what is left out may read a value before the exit
            needed = set(topological([exits[0]]))
            region = {n: None for n in region if n in needed}
            exits = [n for n in region if self._read_outside(n, region)]
        needed = set(topological(exits or region))
        return [n for n in region if n in needed]

    def _pointwise(self, n: Node) -> bool:
        row = OPS[n.op]
        return (
            row.kind is Kind.POINTWISE
            and row.cpp is not None
            and n not in self.owner
            and not self.parametric[n]
            and n.dtype == torch.float32
            and all(i.dtype == torch.float32 for i in _values_read(n))
        )

    def _reaches(self, node: Node, region: Iterable[Node]) -> bool:
        """Is `node` computed from any of `region`?"""
        targets = set(region)
        return any(n in targets for n in topological([node]))

    def _read_outside(self, node: Node, region: Iterable[Node]) -> bool:
        inside = set(region)
        readers = {r for reader in self.readers.get(node, ()) for r in self._through_mask(reader)}
        return node in self.roots or any(r not in inside for r in readers)

    def _through_mask(self, reader: Node) -> list[Node]:
        """A comparison is computed inside its readers."""
        return self.readers.get(reader, []) if reader.dtype == torch.bool else [reader]

    def _new(self, template: Template, dims: tuple[Dim, ...]) -> _Draft:
        draft = _Draft(template, tuple(dims))
        self.drafts.append(draft)
        return draft

    def _add(self, draft: _Draft, node: Node) -> None:
        for mask in _masks(node):
            if mask not in draft.nodes:
                draft.nodes.append(mask)
        draft.nodes.append(node)
        self.owner[node] = draft

    def _join(self, node: Node, space: tuple[Dim, ...]) -> None:
        candidates: dict[int, _Draft] = {}
        for i in _values_read(node):
            if i in self.owner:
                draft = self.owner[i]
                candidates[self.drafts.index(draft)] = draft
        for _, draft in sorted(candidates.items(), reverse=True):
            if self._fits(draft, node, space) and not self._cycles(draft, node):
                self._add(draft, node)
                return
        self._add(self._sibling(node, space) or self._new(Template.ROWS, space), node)

    def _sibling(self, node: Node, space: tuple[Dim, ...]) -> _Draft | None:
        """A group over the same rows that reads a value that `node` reads: it is read once.

        Small vectors share one launch whatever they read.
        """
        vector = all(d == 1 for d in space[:-1]) and OPS[node.op].kind is not Kind.REDUCE
        wide = {i for i in _values_read(node) if i.shape == space}
        for draft in self.drafts:
            if (
                draft.template is Template.ROWS
                and draft.dims == tuple(space)
                and (vector or not wide.isdisjoint(draft.inputs()))
                and self._fits(draft, node, space)
                and not self._cycles(draft, node)
            ):
                return draft
        return None

    def _addressable(self, inputs: Iterable[Node], space: tuple[Dim, ...]) -> bool:
        return all(all(a in (1, b) for a, b in zip(i.shape, space, strict=True)) for i in inputs)

    def _fits(self, draft: _Draft, node: Node, space: tuple[Dim, ...]) -> bool:
        if draft.template is Template.COLUMNS:
            return False
        row_shape = (*draft.dims[:-1], 1)
        reduces = OPS[node.op].kind is Kind.REDUCE
        if space == draft.dims and (draft.dims[-1] != 1 or not reduces):
            level = "full"
        elif space == row_shape and not reduces:
            level = "row"
        else:
            return False
        inside = set(draft.nodes)
        if level == "row":
            # every operand must be one value a row
            return all(
                i.shape == row_shape if i in inside else self._addressable([i], row_shape)
                for i in _values_read(node)
            )
        if not self._addressable(_values_read(node), draft.dims):
            return False
        if draft.template is Template.MATMUL:
            # the epilogue is closed; what a row reduces to is known only when the row is complete
            return reduces and node.inputs[0] is self._value(draft)
        return True

    def _value(self, draft: _Draft) -> Node:
        full = [n for n in draft.nodes if OPS[n.op].kind is not Kind.REDUCE]
        return [n for n in full if n.shape == draft.dims][-1]

    def _cycles(self, draft: _Draft, node: Node) -> bool:
        """Would `node` in `draft` make the draft wait for itself?"""
        seen: set[Node] = set()
        stack = [i for i in _values_read(node) if self.owner.get(i) is not draft]
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            if self.owner.get(n) is draft:
                return True
            group = self.owner.get(n)
            stack.extend(n.inputs)
            if group is not None:
                stack.extend(group.inputs())
        return False

    def _place_column_reduction(self, node: Node, x: Node) -> None:
        whole = all(d == 1 for d in node.shape[:-1])
        draft = self.owner.get(x)
        if (
            whole
            and draft is not None
            and draft.template is Template.MATMUL
            and x is self._value(draft)
            and node.op in ("sum", "mean", "var", "max", "min")
        ):
            self._add(draft, node)
            return
        for other in self.drafts:
            same = other.template is Template.COLUMNS and other.nodes[0].inputs == node.inputs
            if same and other.nodes[0]["axes"] == node["axes"] and not self._cycles(other, node):
                self._add(other, node)
                return
        self._add(self._new(Template.COLUMNS, x.shape), node)

    def _absorb_pointwise_into_columns(self) -> None:
        """A pointwise value read by nothing but one column reduction is computed inside it."""
        readers = {n: {self.owner.get(r) for r in found} for n, found in self.readers.items()}
        for draft in self.drafts:
            if draft.template is not Template.COLUMNS:
                continue
            source = self.owner.get(draft.nodes[0].inputs[0])
            if source is None or source.template is not Template.ROWS:
                continue
            pointwise = all(
                OPS[n.op].kind is Kind.POINTWISE and n.shape == draft.dims for n in source.nodes
            )
            private = all(
                n not in self.roots and readers.get(n, set()) <= {source, draft}
                for n in source.nodes
            )
            if pointwise and private:
                draft.nodes = source.nodes + draft.nodes
                for n in source.nodes:
                    self.owner[n] = draft
                source.nodes = []
        self.drafts = [d for d in self.drafts if d.nodes]

    # --- folds ----------------------------------------------------------------------------------
    def _folds(self) -> tuple[Fold, ...]:
        found: dict[Node, None] = {}
        for n in self.order:
            if not self.parametric[n]:
                # a kernel compares for itself
                for i in _values_read(n) if n in self.owner else n.inputs:
                    if self.parametric[i] and is_computed(i):
                        found.setdefault(i)
        for root in self.graph.roots():
            if self.parametric[root] and is_computed(root):
                found.setdefault(root)
        return tuple(
            Fold(
                f"folded{k}",
                node,
                tuple(n for n in topological([node]) if n.op in ("param", "constant")),
            )
            for k, node in enumerate(found)
        )

    # --- order ----------------------------------------------------------------------------------
    def _ordered(self) -> list[Step]:
        """What the outputs need, each step after those that it reads."""
        order: list[_Draft | Node] = []
        done: set[int] = set()
        stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(self.graph.roots())]
        while stack:
            node, ready = stack.pop()
            if self.parametric[node] or not is_computed(node):
                continue
            draft = self.owner.get(node)
            key = id(draft) if draft is not None else id(node)
            if key in done:
                continue
            if ready:
                done.add(key)
                order.append(node if draft is None else draft)
                continue
            stack.append((node, True))
            sources = node.inputs if draft is None else draft.inputs()
            stack.extend((i, False) for i in reversed(sources))
        wanted = set(self.graph.roots())
        for item in order:
            wanted.update(item.inputs() if isinstance(item, _Draft) else item.inputs)
        steps: list[Step] = []
        for item in order:
            if isinstance(item, Node):
                steps.append(Call(item))
                continue
            # masks appended for one reader may stand behind a node that shares them
            inside = set(item.nodes)
            nodes = tuple(n for n in topological(item.nodes) if n in inside)
            outputs = tuple(n for n in nodes if n in wanted and n.dtype != torch.bool)
            number = sum(isinstance(s, Group) for s in steps)
            name = f"{item.template.value}{number}"
            steps.append(
                Group(name, item.template, item.dims, nodes, tuple(item.inputs()), outputs)
            )
        return steps


def _masks(node: Node) -> list[Node]:
    """The comparisons that `node` reads, computed beside it."""
    return [i for i in node.inputs if i.dtype == torch.bool and OPS[i.op].kind is Kind.POINTWISE]


def _values_read(node: Node) -> list[Node]:
    """The inputs of `node`, those of its comparisons in their place."""
    values: dict[Node, None] = {}
    for i in node.inputs:
        for v in i.inputs if i in _masks(node) else (i,):
            values.setdefault(v)
    return list(values)


def _leading(axes: tuple[int, ...], shape: tuple[Dim, ...]) -> bool:
    """Are the reduced axes one run that ends just before the last axis?"""
    wide = [a for a in axes if shape[a] != 1]
    if not wide or -1 in axes:
        return False
    return all(a in axes or shape[a] == 1 for a in range(min(wide), -1))


__all__ = ["Call", "Fold", "Group", "Plan", "Step", "Template", "hint", "make_plan"]
