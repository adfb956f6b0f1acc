"""What a suite's rows say together: geometric means and medians, never a mean of ratios.

A task counts in the mode of a module as it is constructed, which is train mode. Over eager, a task
whose original is kept, and one that failed, count as 1: their user has eager. Over the best
baseline that was timed, a kept one counts as eager does against it, and what was not timed as 1.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from refold.judge.ask.look import number
from refold.suite.rows import ACCEPTED, FAILED, KEPT, Row, kept, outcome

# what a speed-up of a task says something of: models that cannot be folded into one layer, and
# those that can, or whose output does not depend on the input
ORDINARY, FOLDED = "ordinary", "folded"


@dataclass(frozen=True)
class Spread:
    """Of ratios: how many, their geometric mean, median, extremes, and how many are below 1."""

    count: int
    geometric_mean: float
    median: float
    least: float
    most: float
    slower: int

    @staticmethod
    def of(ratios: Iterable[float]) -> Spread | None:
        """None where there is none."""
        held = [r for r in ratios if r > 0 and math.isfinite(r)]
        if not held:
            return None
        mean = math.exp(statistics.fmean(map(math.log, held)))
        slower = sum(r < 1 for r in held)
        return Spread(len(held), mean, statistics.median(held), min(held), max(held), slower)


@dataclass(frozen=True)
class Part:
    """Tasks of one kind. over_eager, over_best: of all of them. ceiling: of accepted ones, the
    least time that their device is predicted to need over the time taken."""

    kind: str
    tasks: int
    over_eager: Spread | None
    over_best: Spread | None
    ceiling: Spread | None


@dataclass(frozen=True)
class Summary:
    """tasks: how many have rows. faster: accepted, and faster than each baseline that was timed.
    failed: their names."""

    tasks: int
    statuses: dict[str, int]
    faster: int
    failed: tuple[str, ...]
    parts: tuple[Part, ...]
    best_known: bool

    def text(self) -> str:
        """For a terminal."""
        counts = ", ".join(f"{n} {s}" for s, n in self.statuses.items())
        lines = [f"{self.tasks} tasks: {counts}; {self.faster} accepted and faster"]
        for part in self.parts:
            if part.over_eager is None or part.over_best is None:
                continue
            lines.append(
                f"{part.kind} tasks ({part.tasks}): over eager {_told(part.over_eager)};"
                f" over the best baseline timed {_told(part.over_best)}"
            )
            if part.ceiling is not None:
                c = part.ceiling
                lines[-1] += (
                    f"; of the predicted ceiling {c.geometric_mean:.0%} (median {c.median:.0%},"
                    f" {c.count} timed)"
                )
        if self.failed:
            lines.append(f"failed: {', '.join(self.failed)}")
        return "\n".join(lines)


def _told(s: Spread) -> str:
    mean, median, least, most = map(number, (s.geometric_mean, s.median, s.least, s.most))
    return f"{mean} (median {median}, {least} to {most}, {s.slower} slower)"


def summary(rows: Sequence[Row]) -> Summary:
    """Of one row a task."""
    parts = []
    for kind in (ORDINARY, FOLDED):
        chosen = [row for row in rows if kind_of(row) == kind]
        if chosen:
            parts.append(
                Part(
                    kind,
                    len(chosen),
                    Spread.of(map(over_eager, chosen)),
                    Spread.of(map(over_best, chosen)),
                    Spread.of(c for row in chosen if (c := ceiling(row)) is not None),
                )
            )
    return Summary(
        len(rows),
        dict(Counter(map(outcome, rows)).most_common()),
        sum(outcome(row) == ACCEPTED and over_best(row) > 1 for row in rows),
        tuple(row["task"] for row in rows if row["status"] in FAILED),
        tuple(parts),
        any(_times(row).get("best", "eager") != "eager" for row in rows),
    )


def kind_of(row: Row) -> str:
    """By the judge's word, which asks the reference alone; of what was not judged, ordinary."""
    return FOLDED if row.get("kind") in ("foldable", "degenerate") else ORDINARY


def _times(row: Row) -> dict[str, Any]:
    """The times of the mode that counts; empty where there are none."""
    modes: dict[str, dict[str, Any]] = row["measured"].get("modes", {})
    return modes.get("both") or modes.get("train") or {}


def _is_kept(row: Row) -> bool:
    """Does the mode that counts keep the original?"""
    return outcome(row) == KEPT or any(kept(row, mode) for mode in ("both", "train"))


def over_eager(row: Row) -> float:
    """How many times as fast as eager what was written is."""
    times = _times(row)
    if row["status"] != ACCEPTED or _is_kept(row) or "ratio" not in times:
        return 1.0
    return float(times["ratio"])


def over_best(row: Row) -> float:
    """... and as the best baseline that was timed."""
    times = _times(row)
    if outcome(row) not in (ACCEPTED, KEPT) or "speedup_to_best" not in times:
        return 1.0
    return float(times["speedup_to_best"])


def spread_of(row: Row) -> tuple[float, float, float] | None:
    """Of how many times as fast as eager refold is, the lower quartile, median and upper one."""
    times = _times(row)
    if "ratio" not in times or _is_kept(row):
        return None
    low, high = times["ratio_quartiles"]
    return float(low), float(times["ratio"]), float(high)


def ceiling(row: Row) -> float | None:
    """The least time that the device is predicted to need, over refold's; None where it is not
    known."""
    times = _times(row)
    if row["status"] != ACCEPTED or _is_kept(row) or not times.get("floor_s"):
        return None
    return float(times["floor_s"]) / float(times["ours_s"])
