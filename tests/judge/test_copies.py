"""Every reference against itself under another name: whatever it does, that is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from judge_paths import REFERENCES

from refold.judge import Limits, Status, judge

TIMED = {"several", "selection", "noise", "named"}
LARGE = {"vast"}
NAMES = sorted(f.stem for f in REFERENCES.glob("*.py") if f.stem not in LARGE)


@pytest.mark.parametrize("name", NAMES)
def test_copy(name: str, tmp_path: Path) -> None:
    reference = REFERENCES / f"{name}.py"
    copy = tmp_path / "copy.py"
    copy.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
    verdict = judge(
        reference,
        copy,
        quick=True,
        timing=name in TIMED,
        device="cpu",
        limits=Limits(import_seconds=120, call_seconds=20),
    )
    assert verdict.failures == ()
    assert verdict.status is Status.ACCEPTED, verdict.notes


def test_weights_that_a_forward_writes_meet_no_transform(tmp_path: Path) -> None:
    """Under torch.func.grad they become its tensors, and PyTorch ended the judge's process."""
    reference, copy = REFERENCES / "normalized.py", tmp_path / "copy.py"
    copy.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
    verdict = judge(reference, copy, only="function transforms", timing=False, device="cpu")
    assert verdict.accepted, verdict.failures


def test_a_copy_whose_rows_are_equal(tmp_path: Path) -> None:
    """The norm of equal rows is what rounding leaves of nothing, and two threads round otherwise
    than one: next to the border of a relu nobody is turned away for the gradients behind it."""
    reference, copy = REFERENCES / "norm.py", tmp_path / "copy.py"
    copy.write_text(reference.read_text().replace("class Model(", "class ModelNew("))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        verdict = judge(reference, copy, only="inside a network", timing=False, device="cpu")
    finally:
        torch.set_num_threads(before)
    assert verdict.accepted, verdict.failures
