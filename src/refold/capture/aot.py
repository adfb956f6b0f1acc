"""Read a graph that AOTAutograd made, forward or backward, as a Graph.

Such a graph is a function of tensors and sizes: parameters and buffers are inputs like all others,
and what it writes to its inputs stands at its end as copies to them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from refold.capture.aten_move import permuted
from refold.capture.calls import Calls
from refold.capture.captured import Argument, Captured
from refold.capture.forms import Built, Given, OutputIndex, Viewed
from refold.capture.owner import draws_nothing, owner, shows
from refold.capture.results import other_than_rows, view_of
from refold.capture.values import CaptureError, SizeError, Value
from refold.capture.values import value as of_shape
from refold.ir import Dim, Graph, Output, Sym, leaf
from refold.ir.shapes import RANK
from refold.runtime.calls import _refold_in_channels

COPY = torch.ops.aten.copy_.default
AS_STRIDED = torch.ops.aten.as_strided.default


def read_aot(graph: torch.fx.Graph) -> Captured:
    """The function that a graph is, its arguments named as its placeholders are, its result a list.

    Raises CaptureError with one line that says why it cannot be read.
    """
    return AotReader(graph).read()


def arguments_of(graph: torch.fx.Graph) -> list[torch.fx.Node]:
    """What a graph takes: its placeholders, then the tensors that it holds."""
    places = [n for n in graph.nodes if n.op == "placeholder"]
    return places + [n for n in graph.nodes if n.op == "get_attr"]


def results_of(graph: torch.fx.Graph) -> Sequence[Any]:
    """What a graph gives, in order."""
    (final,) = (n for n in graph.nodes if n.op == "output")
    results: Any = final.args[0]
    return results if isinstance(results, (list, tuple)) else [results]


class AotReader(Calls):
    """Reads one graph."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        metas = (n.meta.get("val") for n in arguments_of(graph))
        tensors = [m for m in metas if isinstance(m, torch.Tensor)]
        devices = {m.device for m in tensors if m.dim() or m.device.type != "cpu"}
        if len(devices) > 1:
            raise CaptureError(f"tensors lie on {', '.join(sorted(map(str, devices)))}")
        if not tensors:
            raise CaptureError("it takes no tensor")
        super().__init__(devices.pop() if devices else tensors[0].device)
        self.graph = graph
        self.written: dict[torch.fx.Node, torch.fx.Node] = {}  # inputs, and what is copied to them

    def read(self) -> Captured:
        fields, numbers = self._placeholders()
        for node in self.graph.nodes:
            if node.op == "call_function":
                self._visit(node)
        results, outputs = self._results()
        captured = Captured(
            Graph(tuple(outputs)), fields, (), results, {}, {}, {}, {}, frozenset(), False,
            derived=self._derived(), device=self.device, numbers=numbers,
        )  # fmt: skip
        known = {*captured.symbol_sources(), *numbers, *captured.derived}
        missing = {*self.sizes.names.values()} - known
        if missing:
            raise CaptureError("a size of an input is not free by itself")
        return captured

    def _placeholders(self) -> tuple[tuple[Argument, ...], dict[str, str]]:
        fields: list[Argument] = []
        numbers: dict[str, str] = {}
        as_given = self._as_given()
        for node in arguments_of(self.graph):
            meta: Any = node.meta.get("val")
            if isinstance(meta, (torch.SymInt, int)):
                size = self.sizes.dim(meta)
                self.env[node] = size
                if isinstance(size, Sym) and (name := _alone(size)) is not None:
                    numbers.setdefault(name, node.name)
            elif type(meta) is not torch.Tensor and not is_fake(meta):
                raise CaptureError(f"it takes a {type(meta).__name__}")
            elif meta.layout is not torch.strided or meta.is_neg() or meta.is_conj():
                raise CaptureError("it takes a tensor that is not dense")
            else:
                order = None if node in as_given else self._order(meta)
                made = self.given(meta, node.name, len(fields), order)
                fields.append(Argument(node.name, made.shape, meta.dtype, order=order))
                if order is not None:
                    made = permuted(made, [order.index(i) for i in range(len(order))])
                self.env[node] = made
        return tuple(fields), numbers

    def given(
        self, meta: torch.Tensor, name: str, index: int, order: tuple[int, ...] | None = None
    ) -> Value:
        """The value of a tensor that is given. order: of its dimensions."""
        shape = self._shape(meta)
        if order is not None:
            shape = tuple(shape[i] for i in order)
        return Value(leaf("input", shape, meta.dtype, name=name, index=index), shape)

    def _as_given(self) -> set[torch.fx.Node]:
        """Arguments that are written to, or that results are views of: these are spoken of as they
        are given."""
        found = set()
        for node in results_of(self.graph):
            while isinstance(node, torch.fx.Node) and node.op == "call_function" and node.args:
                source = node.args[0]
                node = source if node.target is operator.getitem or shows(node) else None
            if isinstance(node, torch.fx.Node):
                found.add(node)
        copies = self.graph.find_nodes(op="call_function", target=COPY)
        return found | {n.args[0] for n in copies if isinstance(n.args[0], torch.fx.Node)}

    def _order(self, meta: torch.Tensor) -> tuple[int, ...] | None:
        """The dimensions of a tensor in the order in which they lie one in the other, where that is
        another than its own: what a backward keeps is often the transpose of a value. None where
        there are gaps, or for images, whose layout is chosen for the graph as a whole."""
        shape, strides = list(meta.shape), list(meta.stride())
        if meta.dim() > RANK or not all(isinstance(n, int) for n in (*shape, *strides)):
            return None
        is_image = meta.dim() in (4, 5) and meta.is_floating_point()
        if other_than_rows(shape, strides) is None or (is_image and _refold_in_channels(meta)):
            return None
        order = tuple(sorted(range(meta.dim()), key=lambda i: (-strides[i], i)))
        lies = other_than_rows([shape[i] for i in order], [strides[i] for i in order])
        return order if lies is None else None

    def _shape(self, meta: torch.Tensor) -> tuple[Dim, ...]:
        """A shape in which no size that varies is ever less than 2, which would be spread."""
        for size in meta.shape:
            if isinstance(size, torch.SymInt):
                bound = size.node.shape_env.bound_sympy(size.node.expr)
                if not bound.lower >= 2:
                    raise CaptureError(f"a size, {size}, may be less than 2")
            elif size == 0:
                raise CaptureError("it has a tensor without elements")
        return tuple(self.sizes.dim(d) for d in meta.shape)

    def _visit(self, node: torch.fx.Node) -> None:
        target = node.target
        if target is COPY:
            place, value = node.args[:2]
            if not isinstance(place, torch.fx.Node) or place.op != "placeholder" or node.users:
                raise CaptureError("it writes to what is no input")
            assert isinstance(value, torch.fx.Node)
            self.written[place] = value
            return
        if isinstance(target, torch._ops.OpOverload):
            if target._schema.is_mutable:
                raise CaptureError(f"it writes in place ({target})")
            if draws(node):
                raise CaptureError(f"it draws random numbers ({target})")
        elif isinstance(target, torch._ops.HigherOrderOperator):
            raise CaptureError(f"it calls {target}")
        for meta in torch.utils._pytree.tree_leaves(self._read_of(node)):
            if isinstance(meta, torch.Tensor):
                self._shape(meta)
                if meta.layout is not torch.strided:
                    raise CaptureError("it has a tensor that is not dense")
                if meta.device != self.device and meta.dim():
                    raise CaptureError(f"tensors lie on {meta.device} and {self.device}")
        source = node.args[0] if node.args else None
        made = self.env.get(source) if isinstance(source, torch.fx.Node) else None
        if target is AS_STRIDED and isinstance(made, Value) and _is_reshaped(node):
            self.env[node] = of_shape(made.node, self._shape(node.meta["val"]))
        else:
            self.env[node] = self.call(node)

    def _read_of(self, node: torch.fx.Node) -> Any:
        """What a call gives, of several results those that are read: what attention gives beside
        has no elements where no gradient is wanted."""
        given = node.meta.get("val")
        if not isinstance(given, (tuple, list)):
            return given
        read = self._read_indices(node)
        return [g for i, g in enumerate(given) if i in read or None in read]

    def _results(self) -> tuple[Built, list[Output]]:
        outputs: list[Output] = []
        slots: dict[torch.fx.Node, Any] = {}
        parts: list[Any] = []
        for node in results_of(self.graph):
            if not isinstance(node, torch.fx.Node):
                parts.append(node)
                continue
            if node not in slots:
                slots[node] = self._result(node, outputs)
            parts.append(slots[node])
        for place, value in self.written.items():
            made = self.known(value)
            outputs.append(Output(made.node, made.shape, mutates=place.name, memory=value.name))
        if not outputs:
            raise CaptureError("it computes nothing")
        return Built(list, "sequence", tuple(range(len(parts))), tuple(parts)), outputs

    def _result(self, node: torch.fx.Node, outputs: list[Output]) -> Any:
        v = self.known(node)
        if not isinstance(v, Value):
            return v  # a size
        found = view_of(node, self)
        if found is not None and found[0].op in ("placeholder", "get_attr"):
            place, calls = found
            if place in self.written:
                raise CaptureError("it gives what it writes to")
            return Viewed(place.name, calls) if calls else Given(place.name)
        meta = node.meta["val"]
        strides = other_than_rows(v.shape, [self.sizes.dim(s) for s in meta.stride()])
        # views of one value share its memory, as in the graph: what a backward keeps often does
        outputs.append(Output(v.node, v.shape, strides=strides, memory=owner(node).name))
        return OutputIndex(len(outputs) - 1)

    def _derived(self) -> Mapping[str, Any]:
        if self.sizes.derived:  # they may be 1 at another call, where the values would be spread
            raise SizeError("a size is no polynomial of others")
        return {}


_DRAWING = re.compile("inductor_(random|seed|lookup_seed|randint)")


def draws(node: torch.fx.Node) -> bool:
    """Does a call draw random numbers, or make a seed for those that do?"""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return not draws_nothing(target, node.args, node.kwargs)
    return _DRAWING.match(target.overloadpacket.__name__) is not None


def _is_reshaped(node: torch.fx.Node) -> bool:
    """Does a call of as_strided show all of a value in the order in which it lies, by another
    shape? Decompositions drop axes of length 1 in this way."""
    source = node.args[0]
    before = source.meta.get("val") if isinstance(source, torch.fx.Node) else None
    after = node.meta.get("val")
    if not isinstance(before, torch.Tensor) or not isinstance(after, torch.Tensor):
        return False
    numbers = [*before.shape, *before.stride(), *after.shape, *after.stride()]
    return (
        all(isinstance(n, int) for n in numbers)
        and before.is_contiguous()
        and after.is_contiguous()
        and before.numel() == after.numel()
        and before.storage_offset() == after.storage_offset()
    )


def is_fake(value: object) -> bool:
    return isinstance(value, torch._subclasses.fake_tensor.FakeTensor)


def _alone(size: Sym) -> str | None:
    """The name of a size that is no more than a named one."""
    ((names, factor), *more) = size.terms
    return names[0] if len(names) == 1 and factor == 1 and not more else None
