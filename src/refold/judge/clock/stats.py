"""Medians, quartiles, a bootstrap interval, and what an interval lets one say."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from refold.judge.verdict.verdict import Quartiles, Speed

_SAME = 0.05  # ratios within 5 % of one are called the same
_CLEAR = 0.02  # an interval must leave one by 2 % to be called faster or slower
_RESAMPLES = 2000
T = TypeVar("T", bound=Any)


def quartiles(samples: Sequence[float]) -> Quartiles:
    """Median and quartiles of seconds."""
    if len(samples) < 2:
        only = samples[0] if samples else float("nan")
        return Quartiles(only, only, only, len(samples))
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Quartiles(middle, low, high, len(samples))


def bootstrap(
    samples: Sequence[T],
    seed: int,
    of: Callable[[Sequence[T]], float] = statistics.median,
    sure: float = 0.95,
) -> tuple[float, float]:
    """Interval of a statistic, by default the median, that holds it with this probability."""
    if len(samples) < 2:
        return (0.0, float("inf"))
    draw = random.Random(seed)
    medians = sorted(of(draw.choices(samples, k=len(samples))) for _ in range(_RESAMPLES))
    outside = (1 - sure) / 2
    return medians[int(outside * _RESAMPLES)], medians[int((1 - outside) * _RESAMPLES) - 1]


def decide(low: float, high: float) -> Speed:
    """By the interval of eager's time over the candidate's; it does not guess."""
    if low > 1 + _CLEAR:
        return Speed.FASTER
    if high < 1 - _CLEAR:
        return Speed.SLOWER
    if low >= 1 - _SAME and high <= 1 + _SAME:
        return Speed.SAME
    return Speed.AMBIGUOUS
