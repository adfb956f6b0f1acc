"""Graph -> Plan.

Grouping is greedy in topological order: a node joins the group of the last of its inputs where
that makes no cycle and the template can compute it, else it opens a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import torch

from refold.cost import DeviceModel
from refold.devices import ANY
from refold.ir import NARROW, OPS, Dim, Graph, Kind, Node, hint, numel
from refold.ir.graph import is_computed, is_parametric
from refold.ir.shapes import RANK
from refold.plan.draft import Draft, Drafts
from refold.plan.lower import lower
from refold.plan.memory import Memory, Storage, is_narrowing, is_widening, source
from refold.plan.plan import (
    Plan,
    Template,
    exchanges,
    is_batch,
    is_rematerialized,
    last_full,
    leading,
    reads_numbers,
    values_read,
)
from refold.plan.quantize import with_quantized
from refold.plan.schedules import with_schedules
from refold.plan.steps import folds_of, ordered
from refold.schedule import is_small


def make_plan(
    graph: Graph, storage: Storage | None = None, device: DeviceModel | None = None
) -> Plan:
    """Choose folds and groups for a graph.

    storage: what values may be stored as. device: whose kernels compute them; without one those
    that all devices have.
    """
    storage = storage or Storage()
    device = device or DeviceModel(ANY)
    whole = _only_reduced(graph) if device.exponentials else set()
    while True:
        lowered, done = lower(graph, whole)
        planner = _Planner(lowered, storage.moved(done), device)
        plan = planner.plan()
        apart = {n for n in whole if planner.reduces_apart(done[n])}
        if not apart:
            return plan
        whole -= apart


def _only_reduced(graph: Graph) -> set[Node]:
    """The logsumexps along rows of values that nothing else reads but reductions: a kernel of rows
    that reads them would have the maximum and the sum for nothing."""
    nodes = graph.nodes()
    read = {i for n in nodes if OPS[n.op].kind is not Kind.REDUCE for i in n.inputs}
    along_rows = (n for n in nodes if n.op == "logsumexp" and n["axes"] == (-1,))
    return {n for n in along_rows if n.inputs[0] not in read}


class _Planner(Drafts):
    def __init__(self, graph: Graph, storage: Storage, device: DeviceModel) -> None:
        super().__init__(graph)
        self.device = device
        self.parametric: dict[Node, bool] = {}
        for node in self.order:
            is_parametric(node, self.parametric)
        self.real = storage.real
        self.kinds = {torch.float64} if self.real == torch.float64 else {torch.float32, *NARROW}
        self.memory = Memory(storage, graph.roots(), self.readers, self.parametric, self.owner)

    def plan(self) -> Plan:
        dynamic = [n for n in self.order if not self.parametric[n] and is_computed(n)]
        for node in dynamic:
            self._place(node)
        self.absorb_pointwise()
        self.absorb_vectors()
        self.count()
        folds = folds_of(self, self.parametric)
        steps = ordered(self, self.parametric, self.memory, self.real)
        if self.device.quantizes is not None:
            steps = with_quantized(self.graph, steps, self.device.quantizes)
        steps = with_schedules(steps, self.device)
        memory = {n: self.memory(n) for n in self.order}
        return Plan(self.graph, folds, steps, memory)

    def reduces_apart(self, node: Node) -> bool:
        """Is a reduction anywhere but in a product's epilogue?"""
        draft = self.owner.get(node)
        return draft is None or draft.template is not Template.MATMUL

    # --- grouping -------------------------------------------------------------------------------
    def _place(self, node: Node) -> None:
        if node in self.owner:
            return  # in the epilogue of a product
        kind = OPS[node.op].kind
        # a comparison is computed where its mask is read, never stored
        if is_rematerialized(node) or not self._computable(node) or self._is_stored_so(node):
            return
        if node.op == "linear":
            self._open_product(node)
        elif kind is Kind.POINTWISE and OPS[node.op].cpp is not None:
            self._join(node, node.shape)
        elif kind is Kind.REDUCE and node.row.reduction is not None:
            x = node.inputs[0]
            if node["axes"] == (-1,):
                self._join(node, x.shape)
            elif leading(node["axes"], x.shape):
                self._place_column_reduction(node, x)

    def _computable(self, node: Node) -> bool:
        """Are a value and all that it is computed from numbers that the kernels compute with?"""
        return node.dtype in self.kinds and reads_numbers(node, self.kinds)

    def _is_stored_so(self, node: Node) -> bool:
        """Is rounding what the value lies in memory as? Then nothing is left to be computed."""
        if not is_narrowing(node):
            return False
        (x,) = node.inputs
        draft = self.owner.get(x)
        if draft is not None and (OPS[x.op].kind is not Kind.REDUCE or x["axes"] == (-1,)):
            return False
        return self.memory(x) == node.dtype

    def _open_product(self, node: Node) -> None:
        x, w = node.inputs
        if any(d != 1 for d in w.shape[:-2]) and not self._is_batch(x, w):
            return  # PyTorch's
        folded = self.parametric[source(w)] and bool(source(w).inputs)
        if w.shape[-2] == 1:
            # one output feature: a reduction of x * w along each row
            self.add(self._beside_rows(node) or self.new(Template.ROWS, x.shape), node)
            return
        if not self.device.device.products(self.memory(x), self.memory(w), folded):
            return
        draft = self.new(Template.MATMUL, node.shape)
        draft.turned = self._turned(x, w)
        for n in self._epilogue(node):
            self.add(draft, n)

    def _is_batch(self, x: Node, w: Node) -> bool:
        """Is it a batch of products that kernels compute, each with a weight of its own?"""
        if self.device.batches is None or {self.memory(x), self.memory(w)} != {torch.float32}:
            return False
        last = max(a for a in range(-RANK, -2) if w.shape[a] != 1)
        if x.shape[: last + 1] != w.shape[: last + 1]:
            return False
        counts = numel(w.shape[:-2]), numel(x.shape[:-1]), w.shape[-2], x.shape[-1]
        batches, rows, cols, depth = map(hint, counts)
        as_it_is = depth % 4 == 0 and not self.parametric[x] and not exchanges(x)
        return self.device.batches(batches, rows, cols, depth, as_it_is)

    def _turned(self, x: Node, w: Node) -> tuple[Node, ...]:
        """The sides that the kernel reads from where they lie the other way round."""
        sizes = numel(x.shape[:-1]), w.shape[-2], x.shape[-1]
        if not self.device.device.turns or is_small(*map(hint, sizes)):
            return ()
        sides = [
            i
            for i in (x, w)
            if exchanges(i)
            and not self.parametric[i]
            and not is_widening(i.inputs[0])
            and self.memory(i.inputs[0]) == torch.float32
            # what has one matrix for each product
            and numel(i.shape[:-2]) == numel(w.shape[:-2])
        ]
        bases = [i.inputs[0] if i in sides else source(i) for i in (x, w)]
        return () if bases[0] is bases[1] else tuple(sides)

    def _epilogue(self, product: Node) -> list[Node]:
        """The product and what follows it up to one value, the only one that others read.

        The region grows over pointwise readers; of the values that are read outside it the first
        stays, and what comes after that belongs to other groups.
        """
        region: dict[Node, None] = {product: None}
        waiting = sorted(self.place[r] for r in self.read_by(product))
        while waiting:  # in the order of the graph
            n = self.order[heappop(waiting)]
            if n in region or n.shape != product.shape or not self._pointwise(n):
                continue
            values = values_read(n)
            if not self._addressable(values, product.shape):
                continue
            if any(self.follows(i, region, product) for i in values if i not in region):
                continue
            region.setdefault(n)
            for r in self.read_by(n):
                heappush(waiting, self.place[r])
        exits = [n for n in region if self._read_outside(n, region)]
        while len(exits) > 1:  # what is left out may read a value before the exit
            needed = self.since([exits[0]], product)
            region = {n: None for n in region if n in needed}
            exits = [n for n in region if self._read_outside(n, region)]
        needed = self.since(exits or region, product)
        return [n for n in region if n in needed]

    def _pointwise(self, n: Node) -> bool:
        row = OPS[n.op]
        return (
            row.kind is Kind.POINTWISE
            and row.cpp is not None
            and n not in self.owner
            and not self.parametric[n]
            and not is_rematerialized(n)
            and self._computable(n)
        )

    def _read_outside(self, node: Node, region: Iterable[Node]) -> bool:
        inside = set(region)
        return node in self.roots or any(r not in inside for r in self.read_by(node))

    def _join(self, node: Node, space: tuple[Dim, ...]) -> None:
        candidates: dict[int, Draft] = {}
        for i in values_read(node):
            if i in self.owner:
                draft = self.owner[i]
                candidates[draft.number] = draft
        cyclic = self.cyclic(node)
        for _, draft in sorted(candidates.items(), reverse=True):
            if self._fits(draft, node, space) and not cyclic(draft):
                self.add(draft, node)
                return
        self.add(self._sibling(node, space) or self.new(Template.ROWS, space), node)

    def _sibling(self, node: Node, space: tuple[Dim, ...]) -> Draft | None:
        """A group over the same rows that reads a value that `node` reads: it is read once.

        Small vectors share one launch whatever they read.
        """
        vector = all(d == 1 for d in space[:-1]) and OPS[node.op].kind is not Kind.REDUCE
        wide = {i for i in values_read(node) if i.shape == space}
        cyclic = self.cyclic(node)
        readers = (self.owner.get(r) for i in wide for r in self.read_by(i))
        reading = {d for d in readers if d is not None}
        for draft in self.drafts if vector else sorted(reading, key=lambda d: d.number):
            if (
                draft.template is Template.ROWS
                and draft.dims == tuple(space)
                and (vector or not wide.isdisjoint(draft.inputs()))
                and self._fits(draft, node, space)
                and not cyclic(draft)
            ):
                return draft
        return None

    def _beside_rows(self, node: Node) -> Draft | None:
        """A group of rows as wide that reads what a product of one feature reads, or whose results
        meet the product's in a value of one element a row: one launch then computes both."""
        space = node.inputs[0].shape
        if (draft := self._sibling(node, space)) is not None:
            return draft
        met, seen, waiting = dict[Draft, None](), set[Node](), list(self.read_by(node))
        while waiting:
            r = waiting.pop(0)
            if r not in seen and r.shape == node.shape and self._pointwise(r):
                owners = (self.owner.get(i) for i in values_read(r))
                met.update(dict.fromkeys(d for d in owners if d is not None))
                waiting += self.read_by(r)
            seen.add(r)
        cyclic = self.cyclic(node)
        alike = (d for d in met if d.template is Template.ROWS and d.dims == space)
        return next((d for d in alike if self._fits(d, node, space) and not cyclic(d)), None)

    def _addressable(self, inputs: Iterable[Node], space: tuple[Dim, ...]) -> bool:
        return all(all(a in (1, b) for a, b in zip(i.shape, space, strict=True)) for i in inputs)

    def _fits(self, draft: Draft, node: Node, space: tuple[Dim, ...]) -> bool:
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
                for i in values_read(node)
            )
        if not self._addressable(values_read(node), draft.dims):
            return False
        if draft.template is Template.MATMUL:
            # the epilogue is closed; what a row reduces to is known only when the row is complete
            value = self._value(draft)
            return (
                reduces
                and source(node.inputs[0]) is value
                and not is_batch(draft.nodes)
                and not self._waits(value, node)
            )
        return True

    def _waits(self, value: Node, reduction: Node) -> bool:
        """Is a product's value read once more, by rows that need what it is reduced to?

        Then the kernel of those rows reduces them, too, where it holds them: a product that does
        takes a turn for each of its tiles, and the tensor cores wait.
        """
        if not self.device.device.holds_rows:
            return False
        return any(
            r.shape == value.shape
            and OPS[r.op].kind is Kind.POINTWISE
            and self.follows(r, [reduction], reduction)
            for r in self.read_by(value)
        )

    def _value(self, draft: Draft) -> Node:
        return last_full(draft.nodes, draft.dims)

    def _place_column_reduction(self, node: Node, x: Node) -> None:
        whole = all(d == 1 for d in node.shape[:-1])
        draft = self.owner.get(source(x))
        if (
            whole
            and draft is not None
            and draft.template is Template.MATMUL
            and source(x) is self._value(draft)
            and not is_batch(draft.nodes)
        ):
            self.add(draft, node)
            return
        cyclic = self.cyclic(node)
        for other in self.drafts:
            if other.template is not Template.COLUMNS:
                continue
            first = next(n for n in other.nodes if OPS[n.op].kind is Kind.REDUCE)
            same = first.inputs[0].shape == x.shape and first["axes"] == node["axes"]
            if same and not cyclic(other):
                self.add(other, node)
                return
        self.add(self.new(Template.COLUMNS, x.shape), node)
