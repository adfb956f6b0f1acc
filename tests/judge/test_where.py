"""The table of where the time of a judgement goes: its counts are those of what ran."""

from __future__ import annotations

import threading
import time

import torch
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import judge
from refold.judge.ask.where import where
from refold.judge.truth.resident import LEAST, Residents
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


def test_residents() -> None:
    """A copy is taken again as long as its tensor lives and is not written to."""
    device, held = torch.device("meta"), Residents()
    large, small = torch.zeros(LEAST // 4), torch.zeros(3)
    there = held.of(large, device)
    assert there.device == device and held.of(large, device) is there
    assert held.of(small, device) is small and held.of(large, large.device) is large
    turned = torch.zeros(2, LEAST // 4).t()
    assert held.of(turned, device).stride() == turned.stride()
    assert held.of(torch.zeros(1).expand(LEAST), device).device.type == "cpu"
    large.add_(1)
    assert held.of(large, device) is not there
    before = held.bytes()
    del large
    assert held.bytes() == before - LEAST
    many = [torch.zeros(LEAST * 4) for _ in range(5)]
    assert all(held.of(t, device).device == device for t in many)
    assert held.bytes() <= 1 << 30
    held.clear()
    assert held.bytes() == 0
