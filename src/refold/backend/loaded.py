"""Emitted text as what can be called: a function of a list of tensors, or an operator of PyTorch.

All that a process needs for graphs that were compiled before; nothing here plans.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from refold.emit.load import load_text
from refold.runtime.library import _refold_ninja_on_path

Boxed = Callable[[list[Any]], Any]
AT_ONCE = 8  # compilers; nvcc took 0.3 GB of memory for a part of BERT


class Declined(Exception):
    """A graph is not ours; the text says why."""


class Unbuilt(Declined):
    """... because its kernels could not be compiled here and now."""


# what kernels of one stream work in, of all functions: they run one after another
_workspaces: dict[Any, Any] = {}


class _Forgetful(dict[Any, Any]):
    """Keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def load(text: str, held: Sequence[torch.Tensor] = (), captured: bool = False) -> Boxed:
    """The function of an emitted text; held: what it takes behind its arguments, the tensors that
    the graph holds. captured: it will run in CUDA graphs, whose pool of memory may hold nothing
    between calls, so that kernels get memory to work in for each call. Raises Unbuilt where its
    kernels cannot be compiled."""
    module: Any = load_text(text, keep=False)
    if module._refold_problem is not None:
        raise Unbuilt(module._refold_problem)
    if hasattr(module, "_refold_workspaces"):
        module._refold_workspaces = _Forgetful() if captured else _workspaces
    call: Boxed = module.call
    if not held:
        return call

    def with_constants(args: list[Any]) -> Any:
        given = [*args, *held]
        args.clear()
        return call(given)

    with_constants._boxed_call = True  # type: ignore[attr-defined]
    return with_constants


def compile_ahead(operators: Iterable[Operator]) -> None:
    """Compile the kernels of operators side by side, as many as there are processors, at most
    `AT_ONCE`. `define` finds them compiled. What fails here fails there again and is told there."""
    texts = dict.fromkeys(o.text for o in operators if o.name not in _defined)
    if len(texts) < 2:
        return

    def compiled(text: str) -> None:
        with contextlib.suppress(Exception):
            load_text(text, keep=False)

    workers = min(len(texts), len(os.sched_getaffinity(0)), AT_ONCE)
    with _refold_ninja_on_path(), ThreadPoolExecutor(workers) as pool:
        list(pool.map(compiled, texts))


@dataclass(frozen=True)
class Operator:
    """A part of a graph as an operator `refold::name`. signature: of its schema. results: how many
    tensors it gives. captured: see `load`. draws: whether it draws random numbers."""

    name: str
    signature: str
    results: int
    text: str
    captured: bool = False
    draws: bool = False


_library: Any = torch.library.Library("refold", "FRAGMENT")  # type: ignore[no-untyped-call]
_defined: set[str] = set()
_traced: set[str] = set()


def define(operator: Operator) -> Any:
    """The operator, which is made if it is not there. Raises Unbuilt."""
    if operator.name not in _defined:
        call = load(operator.text, captured=operator.captured)
        tags = (torch.Tag.nondeterministic_seeded,) if operator.draws else ()
        _library.define(f"{operator.name}{operator.signature}", tags=tags)
        run = _real(call, operator.results)
        _library.impl(operator.name, run, "CompositeExplicitAutograd")
        _defined.add(operator.name)
    return getattr(torch.ops.refold, operator.name).default


def trace_as(operator: Operator, fake: Callable[..., Any]) -> None:
    """What the operator gives where tensors have no memory."""
    if operator.name not in _traced:
        torch.library.register_fake(f"refold::{operator.name}", fake, lib=_library)
        _traced.add(operator.name)


def flat(args: Sequence[Any]) -> list[Any]:
    """An operator's arguments one by one, where it is given lists of them (see `Part.given`)."""
    if any(isinstance(a, (list, tuple)) for a in args):
        return [v for a in args for v in a]
    return [*args]


def _real(call: Boxed, results: int) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        made = call(flat(args))
        return made[0] if results == 1 else tuple(made)

    return run
