"""New modules of one file. Where a constructor takes long, most are copies of an unused one."""

from __future__ import annotations

import copy
import gc
import time
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_LONG = 0.03  # seconds of a constructor, above which its module is copied
_MOST = 100_000  # objects that are looked at for what a copy reads of its original


class Builds:
    """Makes modules as the constructor leaves them.

    A copy costs a large model's bytes, the constructor its random numbers: a hundred times more.
    What a class makes of being copied is its own; so the judge asks for a constructed one now and
    then, at random (``anew``).
    """

    def __init__(self, construct: Callable[[list[Any] | None], nn.Module]) -> None:
        self._construct = construct
        self._unused: nn.Module | None = None
        self._random = torch.empty(0)  # of PyTorch's generator, as the constructor leaves it
        self._long: bool | None = None  # whether it takes long to construct one

    def __call__(self, given: list[Any] | None = None, anew: bool = False) -> nn.Module:
        """A new module; ``given``: of other arguments of the constructor."""
        if given is not None:
            return self._construct(given)
        if self._unused is not None and not anew:
            torch.set_rng_state(self._random)
            return copy.deepcopy(self._unused)
        began = time.perf_counter()
        made = self._construct(None)
        if self._long is None:
            self._long = time.perf_counter() - began > _LONG
        elif self._long and self._unused is None:  # a second is wanted, so there will be more
            self._keep(made)
        return made

    def _keep(self, made: nn.Module) -> None:
        self._random = torch.get_rng_state()
        try:
            copied = copy.deepcopy(made)
        except Exception:  # it can not be copied: each is built
            self._long = False
        else:
            whole = is_whole(copied, made)
            self._long, self._unused = whole, copied if whole else None
        torch.set_rng_state(self._random)


def is_whole(copied: nn.Module, made: nn.Module) -> bool:
    """Whether a copy reads nothing of what it is a copy of. ``copy.deepcopy`` leaves functions and
    weak references as they are: a function over a part calls the original's part."""
    theirs = {id(v) for v in (*made.modules(), *made.parameters(), *made.buffers())}
    todo: list[Any] = [vars(m) for m in copied.modules()]
    seen: dict[int, Any] = {}
    while todo and len(seen) < _MOST:
        one = todo.pop()
        if id(one) in theirs:
            return False
        if id(one) in seen or isinstance(one, (type, types.ModuleType, str, bytes, int, float)):
            continue
        seen[id(one)] = one
        todo += _inside(one)
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return [value.__closure__, value.__defaults__, value.__kwdefaults__, vars(value)]
    if isinstance(value, weakref.ref):
        return [value()]
    if isinstance(value, torch.Tensor):
        return []
    return gc.get_referents(value)
