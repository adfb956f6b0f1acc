"""Graphs that are ours, computed as their plans say by PyTorch alone: no kernel is compiled.

What is read, rewritten, planned and handed back of whole models is tested so in seconds a graph;
kernels have tests of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from refold.backend import choose, graphs, loaded
from refold.capture.forms import Given, OutputIndex, Viewed
from refold.ir import Sym
from refold.ir.evaluate import concrete
from refold.plan.reference import _Run
from refold.runtime.calls import _refold_laid_out


@contextmanager
def by_plans() -> Iterator[None]:
    """What is loaded of a text is the plan that it was written of."""
    known: dict[str, graphs.Derived] = {}
    text_of = graphs.Derived.text

    def text(derived: graphs.Derived) -> str:
        made = text_of(derived)
        known[made] = derived
        return made

    def load(text: str, held: Sequence[torch.Tensor] = (), captured: bool = False) -> Any:
        def call(args: list[Any]) -> list[Any]:
            given = [*args, *held]
            args.clear()
            return run(known[text], given)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graphs.Derived, "text", text)
        patch.setattr(choose, "load", load)
        patch.setattr(loaded, "load", load)
        yield


def run(derived: graphs.Derived, args: Sequence[Any]) -> list[Any]:
    """The results of a graph; what it writes to its arguments is written."""
    captured, plan = derived.captured, derived.plan
    given = dict(zip(derived.arguments, args, strict=True))
    sizes = {
        name: given[f.path].shape[axis] for name, (f, axis) in captured.symbol_sources().items()
    }
    sizes |= {name: int(given[path]) for name, path in captured.numbers.items()}
    turned = {f.path: given[f.path].permute(f.order) for f in captured.tensors if f.order}
    leaves = {
        n: turned.get(n["name"], given[n["name"]]) for n in plan.graph.nodes() if n.op == "input"
    }
    step = _Run(plan, leaves, sizes)
    step.written |= {o.mutates: given[o.mutates] for o in plan.outputs if o.mutates is not None}
    outputs = step.outputs()

    def made(part: Any) -> Any:
        if isinstance(part, OutputIndex):
            return laid(outputs[part.index], captured.graph.outputs[part.index].strides, sizes)
        if isinstance(part, Given):
            return given[part.path]
        if isinstance(part, Viewed):
            return viewed(given[part.path], part, sizes)
        return concrete(part, sizes) if isinstance(part, Sym) else part

    return [made(part) for part in captured.result.parts]


def laid(value: torch.Tensor, strides: Any, sizes: Any) -> torch.Tensor:
    if strides is None:
        return value.contiguous()
    return _refold_laid_out(value, tuple(concrete(s, sizes) for s in strides))


def viewed(value: torch.Tensor, view: Viewed, sizes: Any) -> torch.Tensor:
    number = functools.partial(torch.utils._pytree.tree_map, lambda v: _number(v, sizes))
    for target, args, kwargs, index in view.calls:
        name, _, overload = target.rpartition(".")
        space, _, base = name.rpartition(".")
        call = getattr(getattr(getattr(torch.ops, space), base), overload)
        value = call(value, *number(list(args)), **number(dict(kwargs)))
        value = value if index is None else value[index]
    return value


def _number(value: Any, sizes: Any) -> Any:
    return concrete(value, sizes) if isinstance(value, Sym) else value
