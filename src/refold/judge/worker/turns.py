"""In a life: a thread stops within a call while another one makes a whole call.

Threads that run freely meet by chance: PyTorch's operations give the interpreter away for less time
than another thread takes to wake up. What one thread leaves on the module for its next line, the
other overwrites only if it runs just then. So one is stopped where Python calls or returns, once
for each of many such places.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_PLACES = 32  # of a call at which it is stopped; of more a choice, spread over all
_PATIENCE = 0.05  # seconds that a thread stands still at most, or four calls: the other may want a
# lock that it holds
_WAITS = 4  # of those that were too short, behind which nothing more is tried


def meetings(one: Callable[[], T], other: Callable[[], T], seed: int) -> Iterator[tuple[T, T]]:
    """What both gave, where ``one``, in a thread of its own, stood still while ``other`` ran."""
    with ThreadPoolExecutor(1) as pool:
        count, seconds = pool.submit(_counted, one).result()
        patience, late = max(_PATIENCE, 4 * seconds), 0
        for at in _places(count, seed):
            stop = _Stop(at, patience)
            done = pool.submit(stop.run, one)
            stop.reached.wait(60)
            try:
                theirs = other()
            finally:
                stop.go.set()
            yield done.result(), theirs
            late += stop.late
            if late >= _WAITS:
                return


def _places(count: int, seed: int) -> list[int]:
    if count <= _PLACES:
        return list(range(1, count + 1))
    draw, width = random.Random(seed), count / _PLACES
    return [1 + int((i + draw.random()) * width) for i in range(_PLACES)]


def _counted(work: Callable[[], Any]) -> tuple[int, float]:
    """How many calls and returns of Python's there are in it, and how long it takes."""
    found = 0

    def step(_: FrameType, __: str, ___: Any) -> None:
        nonlocal found
        found += 1

    began = time.perf_counter()
    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found, time.perf_counter() - began


class _Stop:
    """Stops a thread at the call or return of this number, until it may go on."""

    def __init__(self, at: int, patience: float) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self.late = False
        self._left, self._patience = at, patience

    def run(self, work: Callable[[], T]) -> T:
        """The work, stopped once."""
        sys.setprofile(self._step)
        try:
            return work()
        finally:
            sys.setprofile(None)
            self.reached.set()

    def _step(self, _: FrameType, __: str, ___: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self.reached.set()
            self.late = not self.go.wait(self._patience)
