"""The clock's arithmetic, on spans that are written down, and one sealed worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import Speed, judge
from refold.judge.clock import load, stopwatch
from refold.judge.clock.decide import Round, decide
from refold.judge.clock.stopwatch import RoundTrip
from refold.judge.wire.host import Host

NOBODY = cast(Host, None)  # no worker: walls are written down
NULL = 60e-6
NOISE = (1.0, 1.01, 0.99, 1.005, 0.995, 1.0, 1.008, 0.992, 1.0, 1.002, 0.998, 1.0)


def rounds(
    eager: float, candidate: float, control: float = 1.0, noise: Sequence[float] = NOISE
) -> list[Round]:
    """Of calls that take these seconds; the control takes ``control`` times eager's."""
    return [
        Round(NULL, NULL + eager * n, NULL + candidate / n, NULL + eager * control * n)
        for n in noise
    ]


def test_sealed_calls_are_the_headline() -> None:
    made = decide(rounds(1e-3, 5e-4), (2.0, 1.99, 2.01), "", "", 0)
    assert made.headline == "sealed" and made.speed is Speed.FASTER
    assert made.low < 2.0 < made.high


def test_what_is_remembered_gains_nothing() -> None:
    """Known inputs cost nothing, new ones their time: the headline is of the new ones."""
    made = decide(rounds(1e-3, 1e-3), (11.8, 11.0, 12.0), "", "", 0)
    assert made.headline == "sealed" and made.speed is Speed.SAME


def test_short_calls_stand_by_known_inputs_while_the_sealed_ones_agree() -> None:
    made = decide(rounds(30e-6, 15e-6), (2.0, 1.95, 2.05), "", "", 0)
    assert made.headline == "warm" and made.speed is Speed.FASTER and made.ratio == 2.0
    made = decide(rounds(30e-6, 30e-6), (7.0, 6.9, 7.1), "", "", 0)
    assert made.speed is Speed.INCONCLUSIVE and "known inputs" in made.note


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"busy": "the machine is busy"}, "busy"),
        ({"impossible": "it takes at least 1 s"}, "at least"),
        ({"control": 1.3}, "eager against eager"),
        ({"noise": NOISE[:4]}, "4 rounds"),
    ],
)
def test_what_cannot_be_believed_is_inconclusive(given: dict[str, Any], says: str) -> None:
    noise, control = given.pop("noise", NOISE), given.pop("control", 1.0)
    known = {"busy": "", "impossible": "", **given}
    made = decide(
        rounds(1e-3, 5e-4, control, noise), (2.0, 1.9, 2.1), known["busy"], known["impossible"], 0
    )
    assert made.speed is Speed.INCONCLUSIVE and says in made.note


def test_a_wide_control_widens_the_interval() -> None:
    still = decide(rounds(1e-3, 9e-4), (1.1, 1.1, 1.1), "", "", 0)
    loud = [
        Round(r.null, r.eager, r.candidate, r.control * n)
        for r, n in zip(rounds(1e-3, 9e-4), (0.8, 1.2) * 6, strict=True)
    ]
    shaky = decide(loud, (1.1, 1.1, 1.1), "", "", 0)
    assert shaky.low < still.low and shaky.high > still.high


def test_pressure_is_read_or_nothing() -> None:
    assert load.pressure() >= 0.0
    assert load.loaded(0.0, 5.0) == "" and "busy" in load.loaded(0.0, 50.0)


def test_round_trips_of_a_busy_moment_leave_laps_their_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = [2.9e-3] * 7 + [1e-4]

    def lap(*_: Any, **__: Any) -> tuple[float, list[float]]:
        return (left.pop(0) if len(left) > 1 else left[0]), [0.0, 0.0]

    monkeypatch.setattr(stopwatch, "lap", lap)
    trip = RoundTrip(NOBODY)
    assert trip.each(1e-3, 1) < 1e-8  # nothing is left of a lap
    trip.again()
    assert trip.seconds == 1e-4


def test_a_memory_of_inputs_is_no_gain_and_no_crime() -> None:
    """Right outputs, however slowly: accepted; its speed is what new inputs cost."""
    verdict = judge(
        REFERENCES / "wide.py",
        CANDIDATES / "attack_memo_content.py",
        quick=True,
        only=["timed outputs", "work"],
        device="cpu",
    )
    assert verdict.failures == () and verdict.timing is not None
    assert verdict.timing.headline == "sealed"
    assert verdict.timing.sealed[1] < 2.0 and verdict.timing.speed is not Speed.FASTER
