"""The clock's arithmetic, on walls that are written down: no lap is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from refold.judge.clock import stopwatch
from refold.judge.clock.agreement import _excess, _Side, typical_excess
from refold.judge.clock.stopwatch import RoundTrip
from refold.judge.wire.host import Host

NOBODY = cast(Host, None)  # no worker: walls are written down
MOST = 31e-6  # seconds that a fresh input and a taken output may cost
CALLS = 8


def trip(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> RoundTrip:
    """One whose empty laps took these, the last of them ever after."""
    left = list(seconds)

    def lap(*_: Any, **__: Any) -> tuple[float, list[float]]:
        return (left.pop(0) if len(left) > 1 else left[0]), [0.0, 0.0]

    monkeypatch.setattr(stopwatch, "lap", lap)
    return RoundTrip(NOBODY)


Costs = tuple[tuple[float, float], tuple[float, float]]


def sides(fixed: float, each: Costs, seen: Sequence[float]) -> tuple[_Side, _Side]:
    """Workers with a lap's fixed cost and the costs of a call, dropped and fresh, in 12 rounds."""
    made = []
    for (dropped, fresh), usual in zip(each, seen, strict=True):
        wall = (fixed + CALLS * dropped, fixed + CALLS * fresh)
        made.append(_Side(NOBODY, 1, 1, CALLS, usual, usual, [wall] * 12))
    return made[0], made[1]


def condemned(pair: tuple[_Side, _Side], of: RoundTrip) -> tuple[bool, bool]:
    """By the least walls, and by the lower quartile of the rounds."""
    rounds = [(*a, *b) for a, b in zip(*(s.rounds() for s in pair), strict=True)]
    usual = [side.usual + of.seconds / CALLS for side in pair]
    eager, candidate = (side.least(of) for side in pair)
    typical = typical_excess(rounds, (usual[0], usual[1]), MOST)
    return _excess(eager, candidate, MOST) > 0, typical > 0


HONEST = ((48e-6, 75e-6), (60e-6, 90e-6))  # eager, candidate
CONTENDED = ((28e-6, 133e-6), (33e-6, 150e-6))  # memory that others use: both pay for fresh inputs
MEMORY = ((48e-6, 75e-6), (2e-6, 90e-6))  # it knows its inputs again
FORGETS = ((48e-6, 75e-6), (88e-6, 90e-6))  # it did, until many were new
LATER = ((148e-6, 175e-6), (180e-6, 220e-6))  # a machine that others use, since the reported laps


def test_an_honest_candidate_and_one_that_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = trip(monkeypatch, 1e-4)
    assert condemned(sides(1e-4, HONEST, (48e-6, 60e-6)), usual) == (False, False)
    assert condemned(sides(1e-4, MEMORY, (48e-6, 2e-6)), usual) == (True, True)
    assert condemned(sides(1e-4, FORGETS, (48e-6, 2e-6)), usual) == (True, True)
    # not acquitted, because eager's fresh calls cost more than they can; nor condemned
    assert condemned(sides(1e-4, CONTENDED, (28e-6, 33e-6)), usual) == (True, False)
    assert condemned(sides(1e-4, LATER, (48e-6, 60e-6)), usual) == (True, False)


def test_round_trips_of_a_busy_moment_leave_laps_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_up = trip(monkeypatch, *[2.9e-3] * 7, 1e-4)
    pair = sides(1e-4, HONEST, (48e-6, 60e-6))
    assert condemned(pair, held_up) == (False, False)
    assert condemned(sides(1e-4, MEMORY, (48e-6, 2e-6)), held_up) == (True, True)
    assert held_up.each(1e-3, 1) < 1e-8  # nothing is left of a lap
    held_up.again()
    assert held_up.seconds == 1e-4
