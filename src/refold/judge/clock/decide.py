"""What sealed calls say about speed: pure arithmetic on spans."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from refold.judge.clock import stats
from refold.judge.verdict.verdict import Speed

ROUNDS = 9  # fewer say nothing
_CONTROL = 0.02  # eager against eager must come within this of one
_MOSTLY = 0.5  # of a call's own time, above which the transport hides it


@dataclass(frozen=True)
class Round:
    """Seconds of a sealed call, of each side's lap, and of the transport beside them."""

    null: float
    eager: float
    candidate: float
    control: float = math.nan  # a second eager; not in every round


@dataclass(frozen=True)
class Decision:
    """The headline: ``sealed`` or ``warm``, its ratio and interval, and what it amounts to."""

    speed: Speed
    headline: str
    ratio: float
    low: float
    high: float
    sealed: tuple[float, float, float]
    control: tuple[float, float]
    note: str


def decide(
    rounds: Sequence[Round], warm: tuple[float, float, float], busy: str, impossible: str, seed: int
) -> Decision:
    """The decision on rounds of sealed calls and the warm ratio with its interval.

    busy: why the machine's times cannot be believed. impossible: why the candidate's can not be.
    Either makes the speed inconclusive, never the candidate a cheat.
    """
    ratio, low, high = _interval(rounds, seed)
    one, other = _control(rounds, seed)
    spread = (math.log(other) - math.log(one)) / 2 if 0 < one < other < math.inf else 0.0
    low, high = low * math.exp(-spread), high * math.exp(spread)
    sealed = (ratio, low, high)
    null = statistics.median(r.null for r in rounds) if rounds else math.nan
    own = statistics.median(r.candidate - r.null for r in rounds) if rounds else math.nan
    hidden = not rounds or null > _MOSTLY * own
    headline, (at, least, most) = ("warm", warm) if hidden else ("sealed", sealed)
    why = busy or impossible
    if not why and len(rounds) < ROUNDS:
        why = f"{len(rounds)} rounds of sealed calls, expected {ROUNDS}"
    if not why and not one <= 1 + _CONTROL:
        why = f"eager against eager is {one:.3f} to {other:.3f}"
    if not why and not other >= 1 - _CONTROL:
        why = f"eager against eager is {one:.3f} to {other:.3f}"
    if not why and hidden and not (warm[2] >= low and warm[1] <= high):
        why = (
            f"on known inputs eager's time is {warm[0]:.3g} times the candidate's, on inputs that "
            f"are revealed when the call begins {low:.3g} to {high:.3g} times"
        )
    speed = Speed.INCONCLUSIVE if why else stats.decide(least, most)
    words = "known inputs: handing them over takes longer than a call" if hidden else "sealed calls"
    note = f"the headline is of {words}; transport {null * 1e6:.0f} us"
    return Decision(speed, headline, at, least, most, sealed, (one, other), why or note)


def _interval(rounds: Sequence[Round], seed: int) -> tuple[float, float, float]:
    if not rounds:
        return math.nan, 0.0, math.inf
    pairs = [(r.eager - r.null, r.candidate - r.null) for r in rounds]
    return _ratio(pairs), *stats.bootstrap(pairs, seed, _ratio)


def _control(rounds: Sequence[Round], seed: int) -> tuple[float, float]:
    held = [(r.eager - r.null, r.control - r.null) for r in rounds if r.control == r.control]
    return stats.bootstrap(held, seed, _ratio) if len(held) > 1 else (1.0, 1.0)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    one, other = (statistics.median(p[i] for p in pairs) for i in (0, 1))
    return max(one, 1e-9) / max(other, 1e-9)
