"""Squares that overflow: nobody is held to what cuDNN alone computes, in float64."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold.judge import Limits, judge

MODEL = """
import torch
from torch import nn


class {name}(nn.Module):
    def forward(self, x):
        wide = x.double() if {wide} else x
        return (wide / wide.square().mean(-1, keepdim=True).sqrt()).to(x.dtype)


def get_inputs():
    return [torch.randn(18, 40)]
"""


@pytest.mark.parametrize(
    ("wide", "accepted"), [("torch.backends.cudnn.enabled", True), ("True", False)]
)
def test_what_cudnn_alone_bears(wide: str, accepted: bool, tmp_path: Path) -> None:
    reference, candidate = tmp_path / "reference.py", tmp_path / "candidate.py"
    reference.write_text(MODEL.format(name="Model", wide=wide))
    candidate.write_text(MODEL.format(name="ModelNew", wide="False"))
    verdict = judge(
        reference,
        candidate,
        quick=True,
        only="far magnitudes",
        timing=False,
        device="cpu",
        limits=Limits(import_seconds=120, call_seconds=20),
    )
    assert verdict.accepted is accepted, verdict.failures
