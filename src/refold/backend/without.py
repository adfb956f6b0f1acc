"""A backward's graph without some of the gradients that it takes, and how it is compiled.

A backward is linear in its gradients. What is computed of missing ones alone is nothing, as in
autograd, which does not call the derivatives of what no gradient comes to. A sum with nothing is
its other operand. Any other call that takes nothing beside a gradient takes zeros.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from refold.backend.inductor import copied, is_incoming
from refold.backend.loaded import Boxed
from refold.backend.missing import Gradients
from refold.backend.options import BackendOptions

log = logging.getLogger("refold")
_aten: Any = torch.ops.aten
_GIVEN = "refold_given"  # in the meta of an argument, as the forward lays it


class Whole(Exception):
    """A graph takes all of its gradients; the text says why."""


@dataclass
class Backward:
    """A backward's graph and how it was compiled. module: the graph, or as it was stored. settings:
    of Inductor, that the call asked for. tag: of PyTorch's caches as the user has it. forward: its
    graph, or as it was stored, and the names of parameters in it: what it saves is measured on what
    it computes. static: places of arguments that stay where they lie. metadata: AOTAutograd's of
    the forward, None in another process. key: of the whole graph on disk, by which a graph without
    some gradients is found in another process, whatever becomes of it on the way there."""

    module: torch.fx.GraphModule | bytes
    options: BackendOptions
    settings: Mapping[str, Any]
    tag: str
    forward: tuple[torch.fx.GraphModule | bytes, frozenset[str]] | None
    static: tuple[int, ...]
    metadata: Any
    key: str | None = None

    def compile(self, missing: frozenset[int]) -> tuple[Boxed, Sequence[int]]:
        """See `Source.compile`. Raises Whole."""
        from torch._guards import TracingContext, detect_fake_mode, tracing
        from torch._inductor import config
        from torch._inductor.utils import BoxedBool

        from refold.backend.compile import compile_graph

        module, taken = without(self._graph(), missing)
        inputs = [n.meta[_GIVEN] for n in module.graph.find_nodes(op="placeholder")]
        mode: Any = detect_fake_mode(inputs)
        context = TracingContext(mode)
        among = {place: i for i, place in enumerate(taken)}
        if self.metadata is not None:  # of which Inductor asks whose memory is free
            context.fw_metadata = copy.copy(self.metadata)
            donated = context.fw_metadata.bw_donated_idxs or ()
            context.fw_metadata.bw_donated_idxs = [among[i] for i in donated if i in among]
        given = {
            "is_backward": True,
            "static_input_idxs": [among[i] for i in self.static if i in among],
            "cudagraphs": BoxedBool(False),
        }
        guards = mode.shape_env.guards if mode is not None and mode.shape_env else []
        before = len(guards)
        settings: Any = config
        name = None if self.key is None else f"{self.key} without {sorted(missing)}"
        with tracing(context), settings.patch(dict(self.settings)), torch.no_grad():
            forward = self._made_by()
            run = compile_graph(self.options, self.tag, forward, module, inputs, given, name=name)
        if len(guards) > before:
            raise Whole("it would hold for some sizes only")
        return run, taken

    def stored(self) -> Backward | None:
        """See `Source.stored`. Sizes that vary are known to this process alone. Where PyTorch
        cannot pickle the graph, what is computed of all gradients is kept nevertheless."""
        module, forward = self.module, self.forward
        if isinstance(module, torch.fx.GraphModule):
            if any(map(_varies, module.graph.nodes)):
                return None
            found = _pickled(module)
            if found is None:
                return None
            module = found
        if forward is not None and isinstance(forward[0], torch.fx.GraphModule):
            first = _pickled(forward[0])
            forward = None if first is None else (first, forward[1])
        return replace(self, module=module, forward=forward, metadata=None)

    def _graph(self) -> torch.fx.GraphModule:
        if isinstance(self.module, bytes):
            self.module = _unpickled(self.module)
        return self.module

    def _made_by(self) -> tuple[torch.fx.GraphModule, frozenset[str]] | None:
        if self.forward is None:
            return None
        module, parameters = self.forward
        if isinstance(module, bytes):
            module = _unpickled(module)
            self.forward = module, parameters
        return module, parameters


def _pickled(module: torch.fx.GraphModule) -> bytes | None:
    from torch.fx._graph_pickler import GraphPickler, Options

    try:
        return GraphPickler.dumps(module, Options(ops_filter=None))
    except Exception as error:
        log.info("refold: a graph of a backward is not kept on disk: %s", error)
        return None


def _unpickled(module: bytes) -> torch.fx.GraphModule:
    from torch._subclasses import FakeTensorMode
    from torch.fx._graph_pickler import GraphPickler
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    found: Any = GraphPickler.loads(module, FakeTensorMode(shape_env=ShapeEnv()))
    assert isinstance(found, torch.fx.GraphModule)
    return found


def _varies(node: torch.fx.Node) -> bool:
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    return any(
        isinstance(s, torch.SymInt)
        for leaf in leaves
        for s in (leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,))
    )


def gradients_of(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    options: BackendOptions,
    settings: Mapping[str, Any],
    tag: str,
    forward: tuple[torch.fx.GraphModule, frozenset[str]] | None,
    given: Mapping[str, Any],
) -> Gradients | None:
    """What a backward does without some of its gradients; None where it takes none. inputs, given:
    what Inductor is given; the others are `Backward`'s."""
    places = module.graph.find_nodes(op="placeholder")
    found = tuple(i for i, node in enumerate(places) if is_incoming(node))
    if not found:
        return None
    needs = _needs(module.graph, {places[i]: i for i in found})
    (final,) = module.graph.find_nodes(op="output")
    results = tuple(
        needs.get(r, frozenset()) if isinstance(r, torch.fx.Node) else None for r in final.args[0]
    )
    orders = tuple(_order(places[i].meta["val"]) for i in found)
    source = None
    if len(found) > 1 and not given.get("cudagraphs"):  # these take all of them
        context = torch._guards.TracingContext.try_get()
        known = None if context is None else context.fw_metadata
        static = tuple(given.get("static_input_idxs", ()))
        graph = copied(module)
        for place, value in zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=True):
            place.meta[_GIVEN] = value
        source = Backward(graph, options, settings, tag, forward, static, known)
    return Gradients(found, orders, results, source)


def without(
    module: torch.fx.GraphModule, missing: Collection[int]
) -> tuple[torch.fx.GraphModule, list[int]]:
    """A graph without the gradients at some places among its arguments, and the places of those
    that it still takes. It gives what is left of the results. Raises Whole."""
    made = copied(module)
    graph = made.graph
    places = graph.find_nodes(op="placeholder")
    if graph.find_nodes(op="call_function", target=_aten.copy_.default):
        raise Whole("it writes to its arguments")
    needs = _needs(graph, {p: i for i, p in enumerate(places) if is_incoming(p)})
    nothing = {places[i] for i in missing}
    for node in list(graph.nodes):
        if node.op in ("placeholder", "output") or node not in needs:
            continue
        incoming = [n for n in node.all_input_nodes if n in needs]
        gone = [n for n in incoming if n in nothing]
        if len(gone) == len(incoming):
            if isinstance(node.meta.get("val"), torch.SymInt):
                raise Whole("a size is a gradient's")
            nothing.add(node)
        elif gone and (other := _summed_with(node, nothing)) is not None:
            node.replace_all_uses_with(other)
        else:
            for value in gone:
                with graph.inserting_before(node):
                    node.replace_input_with(value, _zeros(graph, value.meta["val"], places))
    (final,) = graph.find_nodes(op="output")
    final.args = ([r for r in final.args[0] if r is not None and r not in nothing],)
    graph.eliminate_dead_code()
    taken = [i for i, place in enumerate(places) if place.users]
    for place in places:
        if not place.users:
            graph.erase_node(place)
    made.recompile()
    return made, taken


def _needs(
    graph: torch.fx.Graph, gradients: Mapping[torch.fx.Node, int]
) -> dict[torch.fx.Node, frozenset[int]]:
    """Of what is computed of gradients: of which."""
    found = {node: frozenset([i]) for node, i in gradients.items()}
    for node in graph.nodes:
        of = [found[n] for n in node.all_input_nodes if n in found]
        if of and node.op != "output":
            found[node] = frozenset().union(*of)
    return found


def _summed_with(node: torch.fx.Node, nothing: Collection[torch.fx.Node]) -> torch.fx.Node | None:
    """The other operand, which a sum of it and nothing is; None where that lies otherwise."""
    if node.target is not _aten.add.Tensor or node.kwargs:
        return None
    (other,) = (n for n in node.args if n not in nothing)
    if not isinstance(other, torch.fx.Node):
        return None
    a, b = node.meta["val"], other.meta["val"]
    same = (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
    return other if same else None


def _order(meta: torch.Tensor) -> tuple[int, ...]:
    """The dimensions of a tensor in memory, the outermost first."""
    strides = [s.node.hint if isinstance(s, torch.SymInt) else s for s in meta.stride()]
    return tuple(sorted(range(meta.dim()), key=lambda i: -strides[i]))


def _zeros(graph: torch.fx.Graph, meta: Any, places: Sequence[torch.fx.Node]) -> torch.fx.Node:
    """Zeros in a graph that lie as a tensor does."""
    order = _order(meta)
    known = {
        place.meta["val"].node.expr: place
        for place in places
        if isinstance(place.meta.get("val"), torch.SymInt)
    }

    def size(i: int) -> Any:
        value = meta.shape[i]
        if isinstance(value, torch.SymInt) and value.node.expr not in known:
            raise Whole("a size is not among its arguments")
        return known[value.node.expr] if isinstance(value, torch.SymInt) else value

    kind = {"dtype": meta.dtype, "device": meta.device, "pin_memory": False}
    made = graph.call_function(_aten.full.default, ([size(i) for i in order], 0), kind)
    with torch._guards.detect_fake_mode(meta) or contextlib.nullcontext():
        made.meta["val"] = torch.empty(
            [meta.shape[i] for i in order], dtype=meta.dtype, device=meta.device
        )
        back = [order.index(i) for i in range(len(order))]
        if back == sorted(back):
            return made
        moved = graph.call_function(_aten.permute.default, (made, back))
        moved.meta["val"] = made.meta["val"].permute(back)
    return moved
