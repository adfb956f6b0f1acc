"""Kinds of tasks, and results counted by kind."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from judge_paths import CANDIDATES, REFERENCES

import refold.judge
from refold.contract import load
from refold.judge.ask import cli
from refold.judge.ask.request import asked
from refold.judge.verdict import begin, task_kinds
from refold.judge.verdict.task_kinds import DEGENERATE, FOLDABLE, ORDINARY
from refold.judge.verdict.verdict import Quartiles, Speed, Task, Timing

HEAD = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(32, 16)
        self.b = nn.Linear(16, 8)

    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.rand(8, 32)]
"""
BODIES = {
    "self.b(torch.relu(self.a(x)))": ORDINARY,
    "self.a(x)": ORDINARY,
    "self.a(x).view(8, 2, 8).transpose(1, 2)": ORDINARY,
    "self.b(self.a(x))": FOLDABLE,
    "self.a(x).mean(dim=1, keepdim=True) * 2": FOLDABLE,
    "self.a(x).abs().sum(1, keepdim=True).max(dim=1)[0]": DEGENERATE,
    "torch.softmax(self.a(x).abs().sum(1, keepdim=True), dim=1)": DEGENERATE,
    "self.a(x - x)": DEGENERATE,
}


def kind(path: Path) -> Task:
    session = begin.session(load(path), *asked(path, path, device="cpu", quick=True))
    return task_kinds.classify(session)


@pytest.mark.parametrize("body", BODIES)
def test_kinds(tmp_path: Path, body: str) -> None:
    path = tmp_path / "ref.py"
    path.write_text(HEAD.format(body=body))
    task = kind(path)
    assert task.kind == BODIES[body], task
    assert bool(task.reasons) == (task.kind != ORDINARY)


def test_kinds_of_long_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begin, "_SLOW", 0.0)
    for body in ("self.b(torch.relu(self.a(x)))", "self.b(self.a(x))", "self.a(x - x)"):
        (tmp_path / "ref.py").write_text(HEAD.format(body=body))
        assert kind(tmp_path / "ref.py").kind == BODIES[body]


def test_a_fold_is_counted_apart(capsys: pytest.CaptureFixture[str]) -> None:
    fold = refold.judge.judge(
        REFERENCES / "rowsum.py",
        CANDIDATES / "accept_08_followed_fold.py",
        quick=True,
        timing=False,
        device="cpu",
    )
    assert fold.accepted and fold.task.kind == FOLDABLE
    assert fold.to_dict()["task"]["kind"] == "foldable"
    q = Quartiles(1e-4, 1e-4, 1e-4, 9)
    timing = Timing(
        Speed.FASTER,
        8.0,
        7.0,
        9.0,
        replace(q, median=8e-4),
        q,
        None,
        None,
        1.0,
        0.0,
        first_call_seconds=2.2e-3,
        break_even_calls=3.0,
    )
    fold = replace(fold, timing=timing)
    cli.show(fold)
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "foldable task, to be counted apart" in shown
    assert "takes 2.1 ms longer: pays after 3 calls" in shown
    slower = replace(fold, task=Task(), timing=replace(timing, ratio=0.5, speed=Speed.SLOWER))
    cli.show(slower)
    assert "does not pay" in capsys.readouterr().out
    rows = refold.judge.tally([fold, slower, slower])
    assert rows[FOLDABLE].accepted == 1 and abs(rows[FOLDABLE].speedup - 8) < 1e-9
    assert rows[ORDINARY].tasks == 2 and abs(rows[ORDINARY].speedup - 0.5) < 1e-12
    assert rows[DEGENERATE].tasks == 0 and math.isnan(rows[DEGENERATE].speedup)


_LAZY = """
import time
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None
    def forward(self, x):
        if self.table is None:  # as a device that starts, or a compiler
            began = time.process_time()
            while time.process_time() - began < 0.3:
                pass
            self.table = torch.ones(5)
        return x * self.table

def get_inputs():
    return [torch.randn(4, 5)]

def get_init_inputs():
    return []
"""


def test_a_first_call_that_takes_long_makes_no_model_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begin, "_SLOW", 0.02)  # the first call takes fifteen times as long
    path = tmp_path / "lazy.py"
    path.write_text(_LAZY)
    session = begin.session(load(path), *asked(path, path, device="cpu", quick=True))
    assert not session.frugal and not session.large
