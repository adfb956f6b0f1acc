"""The clock's arithmetic, on walls that are written down: no lap is run."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from refold.judge import stopwatch
from refold.judge.agreement import _disagreement, _Side, _typical_excess
from refold.judge.host import Host
from refold.judge.stopwatch import RoundTrip

NOBODY = cast(Host, None)  # no worker: walls are written down
MOST = 31e-6  # seconds that a fresh input and a taken output may cost
COUNTS = (9, 36)


def trip(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> RoundTrip:
    """One whose empty laps took these, the last of them ever after."""
    left = list(seconds)

    def lap(*_: Any, **__: Any) -> tuple[float, list[float]]:
        return (left.pop(0) if len(left) > 1 else left[0]), [0.0, 0.0]

    monkeypatch.setattr(stopwatch, "lap", lap)
    return RoundTrip(NOBODY)


def sides(fixed: float, *each: tuple[float, float]) -> tuple[_Side, _Side]:
    """Workers with a lap's fixed cost and the costs of a call, dropped and fresh, in 12 rounds."""
    made = []
    for dropped, fresh in each:
        wall = (fixed + 36 * dropped, fixed + 9 * fresh, fixed + 36 * fresh)
        made.append(_Side(NOBODY, COUNTS, math.inf, [wall] * 12))
    return made[0], made[1]


def condemned(pair: tuple[_Side, _Side], of: RoundTrip) -> tuple[bool, bool]:
    """By the least walls, and by the lower quartiles of the rounds."""
    rounds = [(*a, *b) for a, b in zip(*(s.rounds(of) for s in pair), strict=True)]
    return bool(_disagreement(pair, of, MOST)), _typical_excess(rounds) > 0


HONEST = ((48e-6, 75e-6), (60e-6, 90e-6))  # eager, candidate
CONTENDED = ((28e-6, 133e-6), (33e-6, 150e-6))  # memory that others use: both pay for fresh inputs
MEMORY = ((48e-6, 75e-6), (2e-6, 90e-6))  # it knows its inputs again


def test_an_honest_candidate_and_one_that_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = trip(monkeypatch, 1e-4)
    assert condemned(sides(1e-4, *HONEST), usual) == (False, False)
    assert condemned(sides(1e-4, *MEMORY), usual) == (True, True)
    # not acquitted, because eager's fresh calls cost more than they can; nor condemned
    assert condemned(sides(1e-4, *CONTENDED), usual) == (True, False)


def test_round_trips_of_a_busy_moment_leave_laps_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_up = trip(monkeypatch, *[2.9e-3] * 7, 1e-4)
    pair = sides(1e-4, *HONEST)
    assert condemned(pair, held_up) == (True, True)  # nothing is left of known calls: 0 s each
    held_up.again()
    assert held_up.seconds == 1e-4
    assert condemned(pair, held_up) == (False, False)
    assert condemned(sides(1e-4, *MEMORY), held_up) == (True, True)
