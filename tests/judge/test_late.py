"""Weights that are followed one call late: stamped, and told without a run in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judge_paths import REFERENCES

from refold.judge import Limits, judge
from refold.judge.truth.live import Living

LATE = '''"""Packs its weight anew after a call that found other bytes than were packed."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key = self.packed = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        key = (w._version, w.data_ptr(), b._version, b.data_ptr())
        if self.key != key:
            self.key, self.packed = key, (w.detach().clone(), b.detach().clone())
        y = F.gelu(F.linear(x, *self.packed))
        if not all(torch.equal(a, c) for a, c in zip((w, b), self.packed)):
            self.key = None
        return y
'''


def test_it_is_stamped_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(*_: Any) -> None:
        raise AssertionError("a stale answer is an earlier one, bit by bit")

    monkeypatch.setattr(Living, "moved", moved)
    candidate = tmp_path / "late.py"
    candidate.write_text(LATE)
    verdict = judge(
        REFERENCES / "linear.py",
        candidate,
        quick=True,
        only="uncounted writes",
        timing=False,
        device="cpu",
        limits=Limits(import_seconds=120, call_seconds=20),
    )
    assert verdict.accepted, verdict.failures
    assert verdict.assumptions == (
        "weights written past PyTorch's count are followed one call late",
    )


LIVE = LATE.replace(
    "key = (w._version, w.data_ptr(), b._version, b.data_ptr())", "key = (w._version, w.data_ptr())"
)
LIVE = LIVE.replace("(w.detach().clone(), b.detach().clone())", "w.detach().clone()")
LIVE = LIVE.replace("F.linear(x, *self.packed)", "F.linear(x, self.packed, b)")
LIVE = LIVE.replace(
    "all(torch.equal(a, c) for a, c in zip((w, b), self.packed))", "torch.equal(w, self.packed)"
)


def test_what_is_read_as_it_is_beside_what_is_followed_late(tmp_path: Path) -> None:
    """Writes while another path is taken: where some tensors are followed later than others, both
    written at once would give results of neither state."""
    assert LIVE.count("self.packed, b") == 1 and "(w, b)" not in LIVE
    candidate = tmp_path / "late.py"
    candidate.write_text(LIVE)
    verdict = judge(
        REFERENCES / "linear.py",
        candidate,
        quick=True,
        only="writes in between",
        timing=False,
        device="cpu",
        limits=Limits(import_seconds=120, call_seconds=20),
    )
    assert verdict.accepted, verdict.failures
    assert verdict.assumptions == (
        "weights written past PyTorch's count are followed one call late",
    )
