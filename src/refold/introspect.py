"""`refold.status(fast)`: whether a fast module is fast, what it has folded, and what that takes."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch

from refold import twin


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
    graphs = twin.state_of(module).graphs if twin.is_twin(module) else None
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
    if twin.is_twin(module):
        reason = twin.state_of(module).reason
        fast = runs and reason is None
    else:
        fast, reason = runs and not reasons, next(iter(reasons), None)
    if not fast and reason is None:
        reason = "it has not been called in this mode"
    found = tuple(folds.values())
    return Status(fast, reason, found, sum(f.bytes for f in found), audit)
