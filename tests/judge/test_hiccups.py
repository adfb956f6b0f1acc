"""Who shares a processor is asked, and judged, as who has one alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_paths import HERE, REFERENCES

from refold.judge import Limits, Status, judge
from refold.judge.clock.stopwatch import least
from refold.judge.draws.trees import tensors
from refold.judge.tests.lives import constructor
from refold.judge.tests.values import rows
from refold.judge.wire.processes import Waits

CORPUS = HERE / "corpus"
OTHERS = 3
IMPORTED_SLOWLY = """
import time
began = time.process_time()
while time.process_time() - began < 0.5:
    pass
"""
SECONDS = 0.1  # of a moment: most sizes take a few thousandths


def _work(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


def test_the_least_of_a_few_tries_counts() -> None:
    waits = iter((0.05, 0.0, 0.05))
    made, seconds = least(lambda: _work(next(waits)), 0.01)
    assert made is None and seconds < 0.04 and len(list(waits)) == 1


def test_what_is_slow_in_truth_is_made_no_more_than_a_few_times() -> None:
    waits = iter((0.3, 0.3, 0.3))
    assert least(lambda: _work(next(waits)), 0.01)[1] >= 0.3
    assert len(list(waits)) == 1


@pytest.mark.parametrize(
    ("name", "test", "module", "function"),
    [
        ("places_of_16_bits", "long axes", rows, "_takes"),
        ("states_in_bytes", "constructor", constructor, "_taken"),
    ],
)
def test_a_moment_of_each_size_leaves_nothing_out(
    name: str, test: str, module: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = getattr(module, function), Counter[str]()

    def once_held_up(*given: Any) -> Any:
        size = str([tuple(t.shape) for t in tensors(given[1])] or given[2])
        seen[size] += 1
        if seen[size] == 1 < len(seen):  # what the usual size takes is taken off
            _work(SECONDS)
        return usual(*given)

    monkeypatch.setattr(module, function, once_held_up)
    verdict = judge(
        REFERENCES / f"{_reference(name)}.py",
        CORPUS / f"{name}.py",
        quick=True,
        only=test,
        timing=False,
        device="cpu",
    )
    assert test in {f.test for f in verdict.failures}


def _reference(name: str) -> str:
    text = (CORPUS / f"{name}.py").read_text()
    return text.split("reference: ")[1].split("\n")[0]


@pytest.fixture
def crowd() -> Iterator[list[int]]:
    """Processes that are at work all the time on one processor, which is this one's, too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(OTHERS)]
    try:
        yield [one.pid for one in busy]
    finally:
        os.sched_setaffinity(0, before)
        for one in busy:
            one.kill()
            one.wait()


def test_what_waits_for_a_processor_is_known(crowd: list[int]) -> None:
    waits = Waits()
    os.kill(crowd[0], signal.SIGSTOP)
    for pids, low, high in ((crowd[1:], 0.1, 1.0), (crowd[:1], 0.0, 0.05), ([0], 0.0, 0.0)):
        waits.more(pids)
        time.sleep(0.5)
        assert low <= waits.more(pids) <= high


def test_a_limit_counts_no_seconds_that_others_have_the_processor(
    crowd: list[int], tmp_path: Path
) -> None:
    text = (REFERENCES / "linear.py").read_text().replace("Model(", "ModelNew(")
    (tmp_path / "cand.py").write_text(text + IMPORTED_SLOWLY)
    limits = Limits(import_seconds=1.0)
    verdict = judge(
        REFERENCES / "linear.py",
        tmp_path / "cand.py",
        quick=True,
        only="contract",
        timing=False,
        device="cpu",
        limits=limits,
    )
    assert verdict.status is Status.ACCEPTED and len(crowd) == OTHERS
