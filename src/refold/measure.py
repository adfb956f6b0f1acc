"""Times of several ways to compute the same thing, taken alternately in one run.

Only the ratio is worth quoting from a shared machine: the sides take turns, forwards and backwards,
the ratio is taken round by round, and its quartiles come with the median. Correctness is never
decided here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from refold import turns

Run = Callable[[], object]
# what seconds are counted by; time.process_time leaves out what other processes take of a CPU
timer: Callable[[], float] = time.perf_counter
# When more rounds would tell little more: behind so many, where the quartiles are at most so far
# apart over the ratio, and 1 is so many times as far from either.
_CLEAR_ROUNDS, _CLEAR_SPREAD, _CLEAR_DISTANCE = 9, 0.1, 2.0


@dataclass(frozen=True)
class Timing:
    """Median seconds of both sides, and the quartiles of the paired ratio base / other."""

    base: float
    other: float
    low: float
    ratio: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Side:
    """A way to compute something, and the context in which it is timed."""

    run: Run
    setting: Callable[[], AbstractContextManager[object]] = nullcontext

    def clock(self, device: str, repeats: int = 1) -> float:
        """Seconds per call under the side's own setting."""
        with self.setting():
            return clock(self.run, device, repeats)


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def clock(run: Run, device: str, repeats: int = 1) -> float:
    """Seconds per call, the device's queue drained before and after."""
    synchronise(device)
    start = timer()
    for _ in range(repeats):
        run()
    synchronise(device)
    return (timer() - start) / repeats


def compare(base: Run, other: Run, device: str = "cpu", seconds: float = 3.0) -> Timing:
    """Time `base` against `other` for about `seconds`, at least three pairs after warming up."""
    return race({"": Side(base)}, other, device, seconds)[""]


def race(
    bases: Mapping[str, Side],
    other: Run,
    device: str = "cpu",
    seconds: float = 3.0,
    until_clear: bool = False,
) -> dict[str, Timing]:
    """Time each of `bases` against `other`, all of them in turns, for about `seconds` a base.

    There are at least three rounds, after warming up. until_clear: no more than it takes to know
    all ratios well and which side is faster.
    """
    with turns.alone():
        sides = [*bases.values(), Side(other)]
        taken = _taken(sides, device, seconds * len(bases), until_clear)
    return {name: _timing(a, taken[-1]) for name, a in zip(bases, taken, strict=False)}


def _taken(
    sides: Sequence[Side], device: str, seconds: float, until_clear: bool
) -> list[list[float]]:
    """Seconds per call of each side, round by round."""
    once = [min(side.clock(device) for _ in range(2)) for side in sides]
    # a sample shorter than a millisecond is mostly clock and queue
    repeats = [max(1, min(1000, int(0.001 / max(t, 1e-7)))) for t in once]
    turn = sum(t * n for t, n in zip(once, repeats, strict=True))
    rounds = max(3, min(50, int(seconds / max(turn, 1e-6))))
    taken: list[list[float]] = [[] for _ in sides]
    for i in range(rounds):
        order = range(len(sides)) if i % 2 == 0 else reversed(range(len(sides)))
        for k in order:
            taken[k].append(sides[k].clock(device, repeats[k]))
        if until_clear and i + 1 >= _CLEAR_ROUNDS:
            timings = [_timing(base, taken[-1]) for base in taken[:-1]]
            if all(_is_clear(timing) for timing in timings):
                break
    return taken


def _is_clear(timing: Timing) -> bool:
    """Is the ratio known well, and far from 1 by what rounds differ?"""
    apart = timing.high - timing.low
    away = max(timing.low - 1, 1 - timing.high)
    return apart <= _CLEAR_SPREAD * timing.ratio and away > 0 and away >= _CLEAR_DISTANCE * apart


def _timing(a: list[float], b: list[float]) -> Timing:
    ratios = sorted(x / max(y, 1e-12) for x, y in zip(a, b, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Timing(statistics.median(a), statistics.median(b), low, middle, high, len(a))
