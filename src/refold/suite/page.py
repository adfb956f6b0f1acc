"""The suite's page: what its rows say, as one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refold.judge.ask.look import Bar, bars, render
from refold.suite.rows import ACCEPTED, FAILED, KEPT, Row, outcome, why
from refold.suite.summary import kind_of, over_best, over_eager, spread_of, summary

_MOST = 60  # bars of a chart
_REASON = 160  # characters, so that a thousand tasks fit a page


def page(rows: Sequence[Row], tasks: int) -> str:
    """The page of rows, one a task; tasks: how many there are to be."""
    found = summary(rows)
    by_kind = {p.kind: [r for r in rows if kind_of(r) == p.kind] for p in found.parts}
    charts = {kind: _chart(chosen) for kind, chosen in by_kind.items()}
    return render(
        "suite",
        "page.jinja",
        s=found,
        waiting=tasks - len(rows),
        where=", ".join(_where(rows)),
        charts={kind: chart[:_MOST] for kind, chart in charts.items()},
        more={kind: max(0, len(chart) - _MOST) for kind, chart in charts.items()},
        rows=[_line(row) for row in rows],
    )


def _where(rows: Sequence[Row]) -> list[str]:
    """What was measured on: each machine once."""
    machines = [row["measured"].get("machine", {}) for row in rows]
    told = (
        f"{m['host']}, {m['cores']} cores, PyTorch {m['torch']}" for m in machines if "host" in m
    )
    return list(dict.fromkeys(told))


def _chart(rows: Sequence[Row]) -> list[Bar]:
    timed = []
    for row in rows:
        spread = spread_of(row)
        if outcome(row) == ACCEPTED and spread is not None:
            low, middle, high = spread
            timed.append((row["task"], low, middle, high, f"{middle:.2f}×", middle > 1))
    return bars(sorted(timed, key=lambda r: r[2]), 1.0)


def _line(row: Row) -> dict[str, Any]:
    status, reason = outcome(row), why(row)
    colour = "good" if status == ACCEPTED else "bad" if status in FAILED else ""
    ratio = f"{over_eager(row):.2f}×" if status in (ACCEPTED, KEPT) else "–"
    best = f"{over_best(row):.2f}×" if status in (ACCEPTED, KEPT) else "–"
    return {
        "task": row["task"],
        "sizes": row["sizes"],
        "status": status,
        "kind": row.get("kind", "") if kind_of(row) == "folded" else "",
        "colour": "warn" if status == "INCONCLUSIVE" else colour,
        "reason": reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…",
        "over_eager": ratio,
        "over_best": best,
        "error": _error(row),
        "took": f"{row['measured'].get('seconds', 0.0):.0f} s",
    }


def _error(row: Row) -> str:
    for mode in (*row["modes"], *row["measured"].get("modes", {}).values()):
        error, eager = mode.get("error"), mode.get("eager_error")
        if error is not None and eager:
            return f"{error / eager:.2f}"
    return "–"
