"""Generators of random numbers: their states, and how these are put back."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

Known = tuple[Any, Callable[[Any, Any], object]]


@contextlib.contextmanager
def torchs_kept() -> Iterator[None]:
    """PyTorch's random numbers are as they were behind this: the CPU's and all GPUs', which
    `torch.manual_seed` begins anew, too."""
    cuda: Any = torch.cuda
    cards = range(cuda.device_count()) if cuda.is_initialized() else ()
    with torch.random.fork_rng(cards):
        yield


def draws(value: Any) -> Known | None:
    """The state of a generator of Python's or numpy's, and what sets it; None of all else."""
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate(), _set_pythons
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(value, numpy.Generator):
        return value.bit_generator.state, _set_numpys
    if numpy is not None and isinstance(value, numpy.RandomState):
        return value.get_state(legacy=False), _set_older
    return None


def global_generators() -> list[Any]:
    """Those behind `random.random()` and `numpy.random.rand()`."""
    numpy = sys.modules.get("numpy.random")
    found = [getattr(random.seed, "__self__", None), getattr(numpy, "mtrand", None)]
    found[1] = getattr(found[1], "_rand", None)
    return [one for one in found if one is not None]


def has_drawn(value: Any, state: Any) -> bool:
    known = draws(value)
    return known is not None and _whole(known[0]) != _whole(state)


def _set_pythons(value: Any, state: Any) -> None:
    if value.getstate() != state:
        value.setstate(state)


def _set_numpys(value: Any, state: Any) -> None:
    if _whole(value.bit_generator.state) != _whole(state):
        value.bit_generator.state = state


def _set_older(value: Any, state: Any) -> None:
    if _whole(value.get_state(legacy=False)) != _whole(state):
        value.set_state(state)


def _whole(state: Any) -> Any:
    """All of a state: numpy's text of a long array leaves its middle out."""
    if isinstance(state, dict):
        return {k: _whole(v) for k, v in state.items()}
    return state.tobytes() if hasattr(state, "tobytes") else state
