"""Inductor as this backend calls it, and how results lie, which AOTAutograd is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from refold.meanwhile import Meanwhile


def compile_inner(module: torch.fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Any:
    """What Inductor makes of a graph.

    Of each operator that it has no code for, Inductor makes a text with all that the operator
    reads, in PyTorch 2.11 whether or not anybody logs it. That holds the text of what was read
    before, so that each further operator in a chain takes several times as long as the last: of
    BERT's twelve layers no end was seen. Here the text is the operator's name.
    """
    from torch._inductor.compile_fx import compile_fx_inner

    with _texts:
        return compile_fx_inner(module, inputs, **given)


@contextlib.contextmanager
def _short_texts() -> Iterator[None]:
    from torch._inductor import exc

    issue: Any = exc.OperatorIssue
    with mock.patch.object(issue, "operator_str", staticmethod(_named)):
        yield


_texts = Meanwhile(_short_texts)


def _named(target: Any, args: Any, kwargs: Any) -> str:
    return f"  target: {target}"


def kind_of(given: Mapping[str, Any]) -> str:
    """What a graph is, by what Inductor is told: "forward", "backward" or "inference"."""
    kind = "backward" if given.get("is_backward") else "forward"
    return "inference" if given.get("is_inference") else kind


def parameters_of(
    module: torch.fx.GraphModule, kind: str, given: Mapping[str, Any]
) -> frozenset[str]:
    """The placeholders that are parameters or buffers, as far as is known. What a backward keeps of
    its forward's arguments are weights for the most part."""
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    if kind == "backward":
        return frozenset(n for n in names if n.startswith("primals_"))
    return frozenset(names[i] for i in given.get("static_input_idxs", ()) if i < len(names))


def is_incoming(place: torch.fx.Node) -> bool:
    """Is an argument of a backward the gradient of a result, by AOTAutograd's name for it?"""
    return place.name.startswith("tangents_") and isinstance(place.meta.get("val"), torch.Tensor)


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same graph once more: Inductor changes what it compiles."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    made = torch.fx.GraphModule(module, graph)
    made.meta = dict(module.meta)
    return made


@dataclass(frozen=True)
class Inductors:
    """A graph as Inductor compiles it. strides: of its results, which AOTAutograd would be told."""

    run: Any
    strides: list[Any] | None
    seconds: float

    @classmethod
    def of(
        cls, module: torch.fx.GraphModule, inputs: Sequence[Any], given: Mapping[str, Any]
    ) -> Inductors:
        start = time.perf_counter()
        with _strides_kept():
            run = compile_inner(module, inputs, **given)
            return cls(run, _strides(), time.perf_counter() - start)


def _strides() -> list[Any] | None:
    """What was told of the graph that was compiled last."""
    context = torch._guards.TracingContext.try_get()
    told = None if context is None else context.output_strides
    return None if told is None else list(told)


@contextlib.contextmanager
def _strides_kept() -> Iterator[None]:
    """Tells nothing, so that another compilation may tell; puts back what was told before."""
    before = _strides()
    tell_strides([])
    yield
    tell_strides(before)


def tell_strides(strides: Sequence[Any] | None) -> None:
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.output_strides is not None and strides is not None:
        context.output_strides[:] = strides
