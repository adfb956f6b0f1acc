"""The parts of a graph that gain by our kernels, as operators in a graph that is Inductor's.

A part is a region that the op table knows, with a product in it, and that no way leaves and enters
again. It becomes one operator of PyTorch, which Inductor calls as any that it has no code for. What
lies between parts is Inductor's: random numbers, look-ups, attention, convolutions.
"""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils import _pytree as pytree

from refold.backend.graphs import Derived, derive, is_batch, is_product
from refold.backend.loaded import (
    Boxed,
    Declined,
    Operator,
    compile_ahead,
    define,
    flat,
    trace_as,
)
from refold.backend.options import BackendOptions
from refold.capture.aot import COPY, AotReader
from refold.capture.owner import shows
from refold.capture.values import CaptureError, Value
from refold.ir import Dim, Sym
from refold.ir.ops import CONVOLUTIONS

CALLED = 10e-6  # seconds of an operator's call beside its kernels'
MOST = 64  # arguments of an operator of PyTorch

# calls that stand between parts: of a part with a convolution that is the larger one, what the
# products beside it gain would be no gain
_APART = {"aten", *CONVOLUTIONS}

Node = torch.fx.Node


@dataclass(frozen=True, eq=False)
class Part:
    """A region of a graph. nodes: in the graph. graph: the same as a function, whose arguments have
    names of their own, so that equal regions are one operator. inputs, outputs: the nodes of the
    graph that it reads, in the order of its arguments, tensors first, and that others read of it.
    captured: whether it will run in CUDA graphs."""

    nodes: frozenset[Node]
    graph: torch.fx.GraphModule
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    derived: Derived
    captured: bool = False

    @functools.cached_property
    def operator(self) -> Operator:
        return _operator(self)

    @property
    def gain(self) -> float:
        """Seconds."""
        return self.derived.rival - self.derived.seconds - CALLED

    def arguments_among(self, names: Collection[str]) -> frozenset[str]:
        """The names of its own arguments that are given what `names` names in the graph."""
        places = self.graph.graph.find_nodes(op="placeholder")
        pairs = zip(self.inputs, places, strict=True)
        return frozenset(place.name for node, place in pairs if node.name in names)

    def given(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The operator's arguments: `values`, one for each input, or where these are more than
        PyTorch lets an operator have, a list of the tensors and one of the sizes."""
        if len(values) <= MOST:
            return tuple(values)
        tensors = sum(map(_is_tensor, self.inputs))
        return list(values[:tensors]), list(values[tensors:])


def parts_of(
    module: torch.fx.GraphModule,
    options: BackendOptions,
    captured: bool = False,
    apart: bool = False,
) -> list[Part]:
    """The parts of a graph that gain by price. captured: they will run in CUDA graphs, which
    Inductor makes: there all of a graph is a part, if it can be. apart: batches of products, as in
    attention, stand between parts."""
    found = []
    try:
        if captured and not apart and (whole := _whole(module, options)) is not None:
            return [whole]
        regions = [*_regions(module, apart)]
    except CaptureError:
        return []
    known: dict[str, Derived | None] = {}
    for nodes in regions:
        part = _part(module, nodes, options, captured, known)
        if part is not None and part.gain > 0 and part.derived.gains:
            found.append(part)
    compile_ahead(part.operator for part in found)
    return found


def _whole(module: torch.fx.GraphModule, options: BackendOptions) -> Part | None:
    """All that a graph computes, where that gains; what it writes to its arguments is written by
    Inductor, which knows then that it is."""
    nodes = {n for n in module.graph.nodes if n.op == "call_function" and n.target is not COPY}
    part = _part(module, frozenset(nodes), options, True, {})
    return part if part is not None and part.derived.gains else None


# --- regions --------------------------------------------------------------------------------------
class _Known(AotReader):
    """Which calls of a graph the op table knows. What it does not know gives values of its own."""

    def known_nodes(self) -> set[Node]:
        found: set[Node] = set()
        self._placeholders()
        for node in self.graph.nodes:
            if node.op != "call_function":
                continue
            try:
                self._visit(node)
                made = self.env[node]
                values = [v for v in made if v is not None] if isinstance(made, list) else [made]
                if all(isinstance(v, Value) and v.node.op not in _APART for v in values):
                    found.add(node)
            except Exception:  # whatever it is, the call is Inductor's
                self.env[node] = self._unknown(node.meta.get("val"), node.name)
        return found

    def _unknown(self, meta: Any, name: str) -> Any:
        if isinstance(meta, (tuple, list)):
            return [self._unknown(m, f"{name}_{i}") for i, m in enumerate(meta)]
        if not isinstance(meta, torch.Tensor):
            return None
        try:
            return self.given(meta, name, 0)
        except Exception:  # so is what reads it
            return None


class _Supported(OperatorSupportBase):
    def __init__(self, nodes: set[Node]) -> None:
        self.nodes = nodes

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node in self.nodes


def _regions(module: torch.fx.GraphModule, apart: bool = False) -> Iterator[frozenset[Node]]:
    known = _Known(module.graph).known_nodes()
    if apart:
        known = {n for n in known if not is_batch(n)}
    known -= {n for n in known if n.target is operator.getitem and n.args[0] not in known}
    if not any(map(is_product, known)):
        return
    partitioner = CapabilityBasedPartitioner(
        module, _Supported(known), allows_single_node_partition=True
    )
    for partition in partitioner.propose_partitions():
        nodes = frozenset(partition.nodes)
        if any(map(is_product, nodes)):
            yield nodes


def _part(
    module: torch.fx.GraphModule,
    nodes: frozenset[Node],
    options: BackendOptions,
    captured: bool,
    known: dict[str, Derived | None],
) -> Part | None:
    """A region as a part; None where it is none of ours. known: what was derived of others."""
    outputs = tuple(n for n in module.graph.nodes if n in _read_outside(nodes))
    if not outputs or not all(isinstance(n.meta.get("val"), torch.Tensor) for n in outputs):
        return None
    graph = torch.fx.Graph()
    place: dict[Node, Node] = {}
    needed = _needed(outputs, nodes)
    order = [n for n in module.graph.nodes if n in needed]
    read = dict.fromkeys(i for n in order for i in n.all_input_nodes if i not in nodes)
    inputs = tuple(sorted(read, key=_is_tensor, reverse=True))
    for i, node in enumerate(inputs):
        if node.op == "get_attr" or not _is_passed(node.meta.get("val")):
            return None
        place[node] = graph.placeholder(f"given{i}")
        place[node].meta = dict(node.meta)
    for node in order:
        place[node] = graph.node_copy(node, lambda n: place[n])
    graph.output([place[n] for n in outputs])
    what = _text_of(graph)
    if what not in known:
        try:
            known[what] = derive(graph, options)
        except Declined:
            known[what] = None
    derived = known[what]
    if derived is None:
        return None
    made = torch.fx.GraphModule({}, graph)
    return Part(nodes, made, inputs, outputs, derived, captured)


def _text_of(graph: torch.fx.Graph) -> str:
    """All that is derived from a graph, but for the names of its nodes."""
    order = {node: f"%{i}" for i, node in enumerate(graph.nodes)}
    said = []
    for node in graph.nodes:
        args = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: _Named(order[n]))
        metas = pytree.tree_map(_described, node.meta.get("val"))
        said.append(f"{node.op} {node.target if node.op == 'call_function' else ''} {args} {metas}")
    return "\n".join(said)


class _Named(str):
    """Written as it is."""

    __repr__ = str.__str__


def _described(meta: Any) -> Any:
    return (type(meta), *_facts(meta)) if isinstance(meta, torch.Tensor) else meta


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_passed(meta: Any) -> bool:
    return isinstance(meta, (torch.Tensor, torch.SymInt, int)) and not isinstance(meta, bool)


def _read_outside(nodes: frozenset[Node]) -> set[Node]:
    """What others read of a region, but for views, which they make themselves of what it gives."""
    found: set[Node] = set()
    for node in nodes:
        if all(u in nodes for u in node.users):
            continue
        while node in nodes and shows(node):
            source = node.args[0]
            assert isinstance(source, Node)
            node = source
        if node in nodes:
            found.add(node)
    return found


def _needed(outputs: Sequence[Node], nodes: frozenset[Node]) -> set[Node]:
    stack, found = list(outputs), set(outputs)
    while stack:
        for i in stack.pop().all_input_nodes:
            if i in nodes and i not in found:
                found.add(i)
                stack.append(i)
    return found


def call_of(part: Part) -> Boxed:
    """A part's operator as a function of a list. Raises Unbuilt."""
    target = defined(part)

    def call(args: list[Any]) -> Any:
        made = target(*part.given(args))
        return list(made) if len(part.outputs) > 1 else [made]

    return call


# --- operators ------------------------------------------------------------------------------------
def _operator(part: Part) -> Operator:
    """The operator that computes a part, named by what it is; it is not defined by this."""
    kinds = ["Tensor" if _is_tensor(n) else "SymInt" for n in part.inputs]
    if len(kinds) > MOST:
        kinds = ["Tensor[]", "SymInt[]"]
    arguments = ", ".join(f"{kind} a{i}" for i, kind in enumerate(kinds))
    results = ", ".join(["Tensor"] * len(part.outputs))
    results = results if len(part.outputs) == 1 else f"({results})"
    signature, text = f"({arguments}) -> {results}", part.derived.text()
    layout = [_facts(n.meta["val"]) for n in part.outputs]
    what = text, signature, str(layout), part.captured
    digest = hashlib.sha256(repr(what).encode()).hexdigest()
    return Operator(f"part_{digest[:16]}", signature, len(part.outputs), text, part.captured)


def defined(part: Part) -> Any:
    """A part's operator, which PyTorch knows behind this. Raises Unbuilt."""
    target = define(part.operator)
    trace_as(part.operator, _fake(part))
    return target


def _facts(meta: torch.Tensor) -> tuple[Any, ...]:
    return tuple(meta.shape), tuple(meta.stride()), meta.dtype, meta.device


def _fake(part: Part) -> Callable[..., Any]:
    """Tensors without memory, of the sizes that follow from the arguments'."""
    captured = part.derived.captured
    inner = part.graph.graph.find_nodes(op="placeholder")
    places = {n.name: i for i, n in enumerate(inner)}
    sources = {
        name: (places[f.path], axis) for name, (f, axis) in captured.symbol_sources().items()
    }
    numbers = {name: places[path] for name, path in captured.numbers.items()}
    reader = AotReader(part.graph.graph)
    reader.read()
    metas = [n.meta["val"] for n in part.outputs]
    facts = [
        ([reader.sizes.dim(d) for d in m.shape], [reader.sizes.dim(d) for d in m.stride()], m)
        for m in metas
    ]
    kinds = [(m.dtype, m.device) for m in metas]

    def run(*given: Any) -> Any:
        args = flat(given)
        sizes = {name: args[i].shape[axis] for name, (i, axis) in sources.items()}
        sizes |= {name: args[i] for name, i in numbers.items()}
        made = tuple(
            torch.empty_strided(
                [_size(d, sizes) for d in shape],
                [_size(d, sizes) for d in strides],
                dtype=dtype,
                device=device,
            )
            for (shape, strides, _), (dtype, device) in zip(facts, kinds, strict=True)
        )
        return made[0] if len(made) == 1 else made

    return run


def _size(dim: Dim, sizes: dict[str, Any]) -> Any:
    if not isinstance(dim, Sym):
        return dim
    total: Any = 0
    for names, factor in dim.terms:
        term: Any = factor
        for name in names:
            term = term * sizes[name]
        total = total + term
    return total
