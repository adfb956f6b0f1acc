"""Switches that a reference's file sets as it is imported: a candidate may set the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from judge_paths import REFERENCES

from refold.judge import Status, judge

GOOD = (REFERENCES / "linear.py").read_text()
SETS = "\nimport torch\n\ntorch.backends.cudnn.allow_tf32 = {}\n"
OTHER = "\ntorch.backends.cudnn.benchmark = True\n"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process loads the reference, too."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", torch.backends.cudnn.allow_tf32)


@pytest.mark.parametrize(
    ("behind", "status"),
    [
        (SETS.format(False), Status.ACCEPTED),
        ("", Status.ACCEPTED),
        (SETS.format(False) + OTHER, Status.MUTATES),
        (SETS.format(False) + "\n_forward = Model.forward\n\n\n" + "{late}", Status.MUTATES),
    ],
)
def test_what_a_reference_sets(tmp_path: Path, behind: str, status: Status) -> None:
    late = (
        "def _late(self, *args):\n    torch.backends.cudnn.allow_tf32 = True\n"
        "    return _forward(self, *args)\n\n\nModel.forward = _late\n"
    )
    reference, candidate = tmp_path / "ref.py", tmp_path / "cand.py"
    reference.write_text(GOOD + SETS.format(False))
    text = GOOD + behind.replace("{late}", late)
    candidate.write_text(text + "\n\nclass ModelNew(Model):\n    pass\n")
    found = judge(reference, candidate, quick=True, only="flags", timing=False, device="cpu")
    assert found.status is status, found.failures
