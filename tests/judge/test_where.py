"""The table of where the time of a judgement goes: its counts are those of what ran."""

from __future__ import annotations

import threading
import time

from judge_paths import CANDIDATES, REFERENCES

from refold.judge import judge
from refold.judge.ask.where import where
from refold.judge.wire.meter import FULL, METER, Meter


def test_counts() -> None:
    """Of a file and of a test whose calls are known."""
    chosen = ["repeat", "mutation"]
    verdict = judge(REFERENCES / "linear.py", CANDIDATES / "accept_01_copy.py", quick=True,
                    only=chosen, timing=False, device="cpu")  # fmt: skip
    rows = {name: (seconds, cells) for name, seconds, cells in METER.rows()}
    assert verdict.accepted and set(chosen) <= set(rows)
    assert rows["repeat"][1]["worker: call"].count == 20
    assert rows["mutation"][1]["reference fp64"].count == 1
    for name, (seconds, cells) in rows.items():
        assert sum(c.seconds for c in cells.values()) <= seconds + 1e-3, name  # nothing twice
    table = where()
    assert all(f"\n{name} " in table for name in chosen) and "\nall " in table


def test_exclusive_and_of_one_thread() -> None:
    """What runs inside is taken off; another thread is not counted; an error ends a span."""
    meter = Meter()
    meter.begin()
    meter.enter("a")
    with meter.span("outer"):
        with meter.span("inner", FULL):
            time.sleep(0.05)
        thread = threading.Thread(target=lambda: meter.span("foreign").__enter__())
        thread.start()
        thread.join()
    try:
        with meter.span("failed"):
            raise RuntimeError
    except RuntimeError:
        pass
    ((_, _, _), (name, seconds, cells)) = meter.rows()
    assert name == "a" and set(cells) == {"outer", "inner", "failed"}
    assert cells["inner"].seconds >= 0.05 > cells["outer"].seconds
    assert cells["inner"].large == 1 and cells["outer"].large == 0 and seconds >= 0.05
