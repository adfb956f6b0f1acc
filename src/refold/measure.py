"""Times of two ways to compute the same thing, taken alternately in one run.

Only the ratio is worth quoting from a shared machine: the sides alternate in ABBA order, the ratio
is taken pair by pair, and its quartiles come with the median. Correctness is never decided here.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

Run = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """Median seconds of both sides, and the quartiles of the paired ratio base / other."""

    base: float
    other: float
    low: float
    ratio: float
    high: float
    pairs: int


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def clock(run: Run, device: str, repeats: int = 1) -> float:
    """Seconds per call, the device's queue drained before and after."""
    synchronise(device)
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    synchronise(device)
    return (time.perf_counter() - start) / repeats


def compare(base: Run, other: Run, device: str = "cpu", seconds: float = 3.0) -> Timing:
    """Time `base` against `other` for about `seconds`, at least three pairs after warming up."""
    once = {run: min(clock(run, device) for _ in range(2)) for run in (base, other)}
    # a sample shorter than a millisecond is mostly clock and queue
    repeats = {run: max(1, min(1000, int(0.001 / max(t, 1e-7)))) for run, t in once.items()}
    both = sum(once[run] * repeats[run] for run in (base, other))
    pairs = max(3, min(50, int(seconds / max(both, 1e-6))))
    a, b = [], []
    for i in range(pairs):
        if i % 2 == 0:
            a.append(clock(base, device, repeats[base]))
            b.append(clock(other, device, repeats[other]))
        else:
            b.append(clock(other, device, repeats[other]))
            a.append(clock(base, device, repeats[base]))
    ratios = sorted(x / max(y, 1e-12) for x, y in zip(a, b, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return Timing(statistics.median(a), statistics.median(b), low, middle, high, pairs)
