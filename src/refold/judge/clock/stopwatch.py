"""The parent's clock around a worker's laps, and around its own work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from refold.judge.wire.host import Host
from refold.judge.wire.memory import worked

T = TypeVar("T")
_TRIES, _ENOUGH = 4, 0.5  # times that something is made, and seconds after which it is not again


def effort() -> Callable[[], float]:
    """Says how many seconds this process has worked since: on a processor, if that is less than
    have passed. Others that use the machine shall not make a small model look large."""
    wall, own = time.perf_counter(), time.process_time()
    return lambda: min(time.perf_counter() - wall, time.process_time() - own)


def effort_of(host: Host) -> Callable[[], float]:
    """Says how many seconds this process and a worker's have worked since: on processors, if that
    is less than have passed."""
    wall, own, theirs = time.perf_counter(), time.process_time(), worked(host.pid)

    def spent() -> float:
        on_processors = time.process_time() - own + worked(host.pid) - theirs
        return min(time.perf_counter() - wall, on_processors)

    return spent


def least(make: Callable[[], T], most: float) -> tuple[T, float]:
    """What is made, and the seconds on a processor that this thread was at work for it.

    Where these are more than ``most`` it is made again a few times, and the least counts: a
    collection of garbage, or threads of a library that wait for each other on a busy machine, take
    longer than a small model. Others that use the machine shall not say what is asked.
    """
    spent, seconds = 0.0, math.inf
    for _ in range(_TRIES):
        began = time.thread_time()
        made = make()
        took = time.thread_time() - began
        spent, seconds = spent + took, min(seconds, took)
        if seconds <= most or spent > _ENOUGH:
            break
    return made, seconds


def lap(host: Host, order: list[int], store: bool = False) -> tuple[float, list[float]]:
    """The parent's seconds for a lap, and the worker's claims.

    ``order`` is a list of input sets to store outputs of, or ``[start, calls]`` to
    rotate, also among the first of them only: ``[start, calls, sets]``.
    """
    began = time.perf_counter()
    claims = host.request("lap", 600, order=order, store=store)
    seconds = time.perf_counter() - began
    first, second = (float(c) for c in claims)
    return seconds, [first, second]


class RoundTrip:
    """The least seconds of an empty lap of the trusted worker: a part of every other lap.

    It is measured again beside all that it is taken from. A busy machine can hold up every lap of
    one moment; taken from the laps of a better one, that would leave nothing of them.
    """

    def __init__(self, trusted: Host) -> None:
        self.seconds = math.inf
        self._trusted = trusted
        self.again(7)

    def again(self, times: int = 1) -> None:
        """Measure it some more ``times``."""
        for _ in range(times):
            self.seconds = min(self.seconds, lap(self._trusted, [0, 0])[0])

    def each(self, wall: float, calls: int) -> float:
        """Seconds a call, of a lap of ``calls`` that took ``wall`` seconds."""
        return max(wall - self.seconds, 1e-9) / calls
