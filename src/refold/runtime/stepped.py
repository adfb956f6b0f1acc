"""Optimizers and averages: what writes parameters uncounted, so that its end is looked for.

A fused step counts nothing, and on a GPU `torch._foreach_lerp_` does not, by which `AveragedModel`
averages.
"""

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from refold.runtime.calls import _refold_unlike

_refold_live: weakref.WeakSet[Any] = weakref.WeakSet()
_refold_hook: list[Any] = []


def _refold_follow_optimizers(cache: Any) -> None:
    """Let the end of every optimizer's step, and of every average's, be known to a cache, as long
    as the cache lives."""
    if cache in _refold_live:
        return
    _refold_live.add(cache)
    weakref.finalize(cache, _refold_unfollow).atexit = False
    if not _refold_hook:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _refold_hook.append(register_optimizer_step_post_hook(_refold_stepped))
        _refold_followers().append(_refold_averaged)


def _refold_unfollow() -> None:
    """The hook would keep this whole file alive: without caches it goes."""
    if not list(_refold_live) and _refold_hook:
        _refold_hook.pop().remove()
        _refold_followers().remove(_refold_averaged)


def _refold_followers() -> list[Any]:
    """Whom the end of every `AveragedModel.update_parameters` is told, of all files. Two threads
    that wrap it at once wrap it twice: whoever follows is told twice then."""
    from torch.optim import swa_utils

    followers: list[Any] = vars(swa_utils).setdefault("_refold_followers", [])
    averaged: Any = swa_utils.AveragedModel
    update = averaged.update_parameters
    if not hasattr(update, "_refold_followed"):

        @functools.wraps(update)
        def followed(model: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return update(model, *args, **kwargs)
            finally:
                for follower in list(followers):
                    follower(model)

        made: Any = followed
        made._refold_followed, averaged.update_parameters = True, made
    return followers


def _refold_storage(t: torch.Tensor) -> int | None:
    """Where a tensor's memory begins. Sparse and distributed ones have none of their own."""
    try:
        return t.untyped_storage().data_ptr()
    except RuntimeError:
        return None


def _refold_stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """An optimizer has written its parameters, or memory that they are views of."""
    _refold_wrote([p for group in optimizer.param_groups for p in group["params"]])


def _refold_averaged(model: Any) -> None:
    """An average has been moved on."""
    _refold_wrote([*model.module.parameters(), *model.module.buffers()])


def _refold_wrote(written: Sequence[torch.Tensor]) -> None:
    ids = set(map(id, written))
    storages = set(map(_refold_storage, written)) - {None} if len(written) <= 64 else set()
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
