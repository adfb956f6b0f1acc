"""Optimizers: a fused step writes parameters uncounted, so the end of every step is looked for."""

import weakref
from typing import Any

import torch

from refold.runtime.calls import _refold_unlike

_refold_live: weakref.WeakSet[Any] = weakref.WeakSet()
_refold_hook: list[Any] = []


def _refold_follow_optimizers(cache: Any) -> None:
    """Let the end of every optimizer's step be known to a cache, as long as the cache lives."""
    if cache in _refold_live:
        return
    _refold_live.add(cache)
    weakref.finalize(cache, _refold_unfollow).atexit = False
    if not _refold_hook:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _refold_hook.append(register_optimizer_step_post_hook(_refold_stepped))


def _refold_unfollow() -> None:
    """The hook would keep this whole file alive: without caches it goes."""
    if not list(_refold_live) and _refold_hook:
        _refold_hook.pop().remove()


def _refold_storage(t: torch.Tensor) -> int | None:
    """Where a tensor's memory begins. Sparse and distributed ones have none of their own."""
    try:
        return t.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def _refold_stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """An optimizer has written its parameters, or memory that they are views of."""
    stepped = [p for group in optimizer.param_groups for p in group["params"]]
    ids = set(map(id, stepped))
    storages = set(map(_refold_storage, stepped)) - {None} if len(stepped) <= 64 else set()
    for cache in list(_refold_live):
        hit = {id(t) for t in cache.copies if id(t) in ids}
        if storages:
            hit |= {
                id(t)
                for t in cache.copies
                if t.is_contiguous() and t.untyped_storage().data_ptr() in storages
            }
        if hit:
            cache.stepped = (cache.stepped or set()) | hit
            cache.fits, cache.pace.held = _refold_unlike, None
