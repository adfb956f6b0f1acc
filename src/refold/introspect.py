"""`refold.status(fast)`: whether a fast module is fast, what it has folded, and what that takes."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from refold import twin
from refold.capture import Example
from refold.runtime.calls import _REFOLD_PUT_OFF

FOLDS_FAIL = "the folded parameters could not be computed"  # runtime/folds.py says why


@dataclass(frozen=True)
class Folded:
    """One value that is kept: what it is, its shape, its dtype and its bytes."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    bytes: int


@dataclass(frozen=True)
class Status:
    """fast: whether the last call was computed by the kernels. reason: why it was not, or None.

    folds: what is kept of the parameters in every mode that was called. bytes: of all folds.
    audit_calls: a write to part of a parameter that PyTorch does not count, and that no other
    evidence shows, is found within so many calls of one mode; 0 where nothing is kept. On a GPU no
    audit runs: a write to a whole parameter is found by the next call.
    """

    fast: bool
    reason: str | None
    folds: tuple[Folded, ...]
    bytes: int
    audit_calls: int


_kept: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()


def keep(module: torch.nn.Module, why: str) -> None:
    """Note why `refold.optimize` gave a module back as it came."""
    if isinstance(module, torch.nn.Module):
        _kept[module] = why


def status(module: torch.nn.Module) -> Status:
    """What refold does for a module that `refold.optimize` gave, or for a ModelNew.

    Of a module that `refold.optimize` gave back as it came, the reason says why. Raises TypeError
    for any other module.
    """
    if not any("_refold_made" in vars(c) for c in type(module).__mro__):
        if isinstance(module, torch.nn.Module) and module in _kept:
            return Status(False, _kept[module], (), 0, 0)
        kind = type(module).__name__
        raise TypeError(f"expected a module that refold made, got a {kind}: call refold.optimize")
    graphs = twin.state_of(module).graphs if twin.runs_programs(module) else None
    if graphs is not None:
        return Status(graphs.why is None, graphs.why, (), 0, 0)
    folds: dict[int, Folded] = {}
    audit, reasons, runs = 0, [], False
    for namespace, name, cache in twin.caches_of(module):
        mode = namespace._refold_file.modes[name]
        own = {t.data_ptr() for t in cache.sources}
        for (function, _), value in zip(mode["recipes"], cache.values, strict=False):
            if value.data_ptr() not in own:
                copied = function is torch.Tensor.contiguous  # of one that lies otherwise
                words = "" if copied else (function.__doc__ or "").split("\n")[0]
                words = words or "a weight as the kernels read it"
                count = value.numel() * value.element_size()
                folds[value.data_ptr()] = Folded(words, tuple(value.shape), value.dtype, count)
        audit = max(audit, cache.audit_calls)
        if name in ("both", "train" if module.training else "eval"):
            runs = runs or cache.reason is None
            reasons += [cache.reason] if cache.reason else []
            reasons += [_REFOLD_PUT_OFF] if cache.waits else []
    if twin.runs_programs(module):
        reason = twin.state_of(module).reason
        fast = runs and reason is None
    else:
        fast, reason = runs and not reasons, next(iter(reasons), None)
    if not fast and reason is None:
        reason = "it has not been called in this mode"
    found = tuple(folds.values())
    return Status(fast, reason, found, sum(f.bytes for f in found), audit)


def fallback_reason(fast: torch.nn.Module, example: Example | Sequence[Any]) -> str | None:
    """Why the example's call of `fast` would take the original forward in its present mode, or
    None. example: a call, or its positional arguments."""
    call = Example.of(example)
    reason = "the original forward is kept in this mode"
    for namespace, caches in programs(fast):
        for name in ("train" if fast.training else "eval", "both"):
            if name in namespace["_refold_file"].modes:
                of_mode = namespace.get(f"_refold_prepare_{name}")
                prepare = of_mode or namespace["_refold_prepare"]
                given = inspect.signature(fast.forward).bind(*call.args, **call.kwargs)
                given.apply_defaults()
                found = prepare(fast, caches, name, *given.arguments.values())
                if not isinstance(found, str):
                    return None
                reason = found
    return reason


def programs(fast: torch.nn.Module) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The globals of each emitted text that a module tries, and what it has folded for it."""
    if twin.runs_programs(fast):
        return [(vars(p.namespace), caches) for p, caches in twin.state_of(fast).programs]
    cls = next(c for c in type(fast).__mro__ if "_refold_made" in vars(c))
    space = cls.forward.__globals__  # type: ignore[attr-defined]
    return [(space, space["_refold_own_caches"](fast))]
