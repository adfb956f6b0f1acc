"""In a life: Python's clocks say that a day has passed, for whoever works by the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

_DAY = 86_400
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
# where a clock is held, by which name, and what it was
Places = list[tuple[dict[str, Any], str, Any]]
_moved: list[Places] = []


def move(models: Iterable[nn.Module]) -> Places:
    """Move all clocks: those of the module ``time``, and what the files of these modules' own
    classes hold by a name of theirs."""
    later: dict[int, Any] = {}
    for name in _CLOCKS:
        for word, by in ((name, _DAY), (f"{name}_ns", _DAY * 10**9)):
            clock = getattr(time, word)
            later[id(clock)] = _later(clock, by)
    places = [
        (held, name, value)
        for held in (vars(time), *_files(models))
        for name, value in held.items()
        if id(value) in later
    ]
    for held, name, value in places:
        held[name] = later[id(value)]
    _moved.append(places)
    return places


def put_back(places: Places) -> None:
    """Undo `move`."""
    for held, name, value in places:
        held[name] = value
    _moved.remove(places)


def moved() -> bool:
    """Whether clocks are moved, and the last were moved by `move`."""
    return bool(_moved) and all(held[name] is not value for held, name, value in _moved[-1])


def _later(clock: Callable[[], Any], by: int) -> Callable[[], Any]:
    return lambda: clock() + by


def _files(models: Iterable[nn.Module]) -> Iterator[dict[str, Any]]:
    """The globals of functions of the modules' own classes, once each."""
    parts = (part for model in models for part in model.modules())
    classes = dict.fromkeys(c for part in parts for c in type(part).__mro__)
    found = {
        id(held): held
        for one in classes
        if one.__module__.split(".")[0] not in ("torch", "builtins")
        for function in vars(one).values()
        if isinstance(held := getattr(function, "__globals__", None), dict)
    }
    yield from found.values()
