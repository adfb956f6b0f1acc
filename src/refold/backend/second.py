"""Second derivatives, which a compiled backward has none of: PyTorch's own, of the graph as it was.

A backward that Inductor compiles writes over what its forward saved. Where that is asked for once
more (`retain_graph=True`) it writes over copies; PyTorch would raise an error.

AOTAutograd makes one derivative of a graph. Where a gradient is itself to be differentiated
(`create_graph=True`: a gradient's penalty, an equation's residuals), the graph runs once more by
PyTorch's own calls, whose gradients have gradients in turn. Buffers that it writes, as the vectors
of a spectral norm and the statistics of a batch norm, are copies then, of what they were before.
A graph that draws random numbers would not be the same again: there PyTorch's error stays.

Gradients that come in may have the negative bit, which a compiled backward reads past: it gets
copies without.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refold.backend.inductor import copied
from refold.backend.missing import all_come, let_miss, with_missing, without_missing


class _Drawn(Exception):
    """A random number would be drawn once more."""


class _NoDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise _Drawn
        return function(*args, **(kwargs or {}))


class Graph:
    """A graph as Dynamo gave it; Inductor changes the one that it compiles."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = copied(module)

    def gradients(
        self, call: Call, wanted: Sequence[bool], come: Sequence[Any]
    ) -> tuple[Any, ...] | None:
        """Gradients that can be differentiated, of each argument; None where nobody can tell.
        come: the gradients of results."""
        if len(call.given) != len(wanted) or call.versions() != call.known:
            return None
        given = [
            call.before[i].clone() if i in call.before else value
            for i, value in enumerate(call.given)
        ]
        try:
            with torch.enable_grad(), _NoDraws():  # type: ignore[no-untyped-call]
                results = self.module(*given)
        except _Drawn:
            return None
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        if len(results) != len(come):
            return None
        pairs = [
            (result, gradient)
            for result, gradient in zip(results, come, strict=True)
            if isinstance(result, torch.Tensor) and result.requires_grad and gradient is not None
        ]
        sought = [value for value, asked in zip(given, wanted, strict=True) if asked]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in pairs],
                sought,
                [gradient for _, gradient in pairs],
                create_graph=True,
                allow_unused=True,
            )
        )
        return tuple(next(found) if asked else None for asked in wanted)


_VERSION = operator.attrgetter("_version")


@dataclass
class Call:
    """A call of a graph. before: the arguments that it writes, as they were. known: versions of the
    others behind it."""

    given: Sequence[Any]
    before: Mapping[int, torch.Tensor]
    known: Sequence[int] = ()

    def versions(self) -> list[int]:
        kept = [v for i, v in enumerate(self.given) if i not in self.before]
        try:
            return list(map(_VERSION, kept))
        except (AttributeError, RuntimeError):  # sizes, and tensors of inference mode have none
            tensors = (v for v in kept if isinstance(v, torch.Tensor) and not v.is_inference())
            return list(map(_VERSION, tensors))


def with_second(run: Callable[..., Any], graph: Graph | None) -> Callable[..., Any]:
    """A compiled graph whose gradients can be differentiated, by `graph` where there is one."""
    written: Sequence[int] | None = () if graph is None else None  # None: not known yet

    @functools.wraps(run)
    def call(*given: Any) -> Any:
        nonlocal written
        before = _copies(given, written)
        results = run(*given)
        node = _node_of(results, given)
        if node is None:
            written = ()
            return results
        made = type(node)._forward_cls
        _teach(made)
        let_miss(node, made)
        if graph is not None and made._refold_twice and len(made.metadata.input_info) == len(given):
            written = made._refold_written
            if before.keys() >= {*written}:
                _note(node, graph, Call(given, {i: before[i] for i in written}))
        else:
            written = ()
        return results

    return call


def _node_of(results: Any, given: Sequence[Any]) -> Any:
    """The node of a compiled graph's call. A result may have another function's, as of a view, or
    be an argument, which another graph computed."""
    for result in results if isinstance(results, (tuple, list)) else (results,):
        node = result.grad_fn if isinstance(result, torch.Tensor) else None
        if hasattr(getattr(type(node), "_forward_cls", None), "compiled_bw") and not any(
            result is value for value in given
        ):
            return node
    return None


def _copies(given: Sequence[Any], written: Sequence[int] | None) -> dict[int, torch.Tensor]:
    """What a graph may write, before it does. written: None where that is not known: all that wants
    no gradient."""
    if written is None:
        written = [
            i for i, v in enumerate(given) if isinstance(v, torch.Tensor) and not v.requires_grad
        ]
    kinds: dict[Any, list[int]] = {}
    found: dict[int, torch.Tensor] = {}
    for i in written:
        if type(given[i]) is torch.Tensor and _is_usual(given[i]):
            kinds.setdefault((given[i].dtype, given[i].device), []).append(i)
        else:
            found[i] = given[i].clone()
    for places in kinds.values():  # a network's norms have hundreds: one launch for all
        made = torch._foreach_mul([given[i] for i in places], 1)
        found |= zip(places, made, strict=True)
    return found


def _is_usual(value: torch.Tensor) -> bool:
    return value.layout is torch.strided and value.dtype in (torch.float32, torch.int64)


def _note(node: Any, graph: Graph, call: Call) -> None:
    """Let a result's node know what it was computed of."""
    if not torch._C._is_any_autocast_enabled():
        call.known = call.versions()
        node._refold_graph = graph, call


def _teach(made: Any) -> None:
    """Let the class of a graph's nodes know how to ask."""
    if "_refold_whole" not in vars(made) and hasattr(made, "_backward_impl"):
        made._refold_whole = made._backward_impl
        made._backward_impl = staticmethod(functools.partial(_retained, made))
    if "_refold_first" not in vars(made):
        made._refold_first = made.backward
        made.backward = staticmethod(functools.partial(_backward, made))
        written = _written(made)
        made._refold_written = written or ()
        made._refold_twice = hasattr(made, "_double_backward") and written is not None
        made._refold_key = made._compiled_autograd_key
        made._compiled_autograd_key = staticmethod(functools.partial(all_come, made))


def _retained(made: Any, node: Any, given: list[Any]) -> Any:
    """A graph's backward, which leaves what it reads as it is if it may be called once more."""
    donated = getattr(made.metadata, "bw_donated_idxs", None)
    if not donated or not torch._C._autograd._get_current_graph_task_keep_graph():
        return made._refold_whole(node, given)
    for i in donated:
        if isinstance(given[i], torch.Tensor):
            given[i] = given[i].clone()
    config: Any = torch._functorch.config
    with config.patch(donated_buffer=False):  # whose check asks nothing but whether it is on
        return made._refold_whole(node, given)


def _written(made: Any) -> Sequence[int] | None:
    """The arguments that a graph writes; None where its function does not take and give what the
    graph takes and gives, or writes what wants a gradient."""
    known = made.metadata
    if known.num_intermediate_bases or known.num_mutated_inp_runtime_indices:
        return None
    # a result that is an argument, as a buffer that it wrote, has no gradient here
    aliases = known.num_outputs_aliased and any(
        o.requires_grad for o in known.output_info if o.base_idx is not None
    )
    if aliases or made.maybe_subclass_metadata is not None:
        return None
    if any(i.mutates_metadata or (i.mutates_data and i.requires_grad) for i in known.input_info):
        return None
    return [i for i, info in enumerate(known.input_info) if info.mutates_data]


def _backward(made: Any, node: Any, *come: Any) -> Any:
    known = getattr(node, "_refold_graph", None)
    if known is not None and torch.is_grad_enabled() and not torch.compiler.is_compiling():
        graph, call = known
        # in one list, or one by one, as in PyTorch 2.11
        each = come[0] if getattr(made, "boxed_grads_call", False) else come
        found = graph.gradients(call, node.needs_input_grad, each)
        if found is not None:
            return found
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        node._refold_graph = None  # as autograd frees what it has saved
    boxed = len(come) == 1 and isinstance(come[0], list)
    each = list(map(_read, come[0] if boxed else come))
    if missing := any(gradient is None for gradient in each):
        each = with_missing(node, each)
    if boxed:  # a list that is emptied on the way
        come[0][:], each = each, []
    found = made._refold_first(node, *(come if boxed else each))
    return without_missing(node, found, known[1].given if known else ()) if missing else found


def _read(come: Any) -> Any:
    """A gradient that comes in, as memory has its numbers."""
    return come.resolve_neg() if isinstance(come, torch.Tensor) and come.is_neg() else come
