"""What the guard in a worker takes for the candidate's doing, and what is PyTorch's own."""

from __future__ import annotations

from judge_paths import CANDIDATES, HERE, REFERENCES

from refold.judge import Limits, Status, judge

LIMITS = Limits(import_seconds=120, call_seconds=20)
LINEAR = REFERENCES / "linear.py"


def test_a_default_dtype_that_is_left_changed_is_no_patch() -> None:
    """PyTorch exchanges torch.Storage with it. It is found by its own name; calls behind one that a
    hook ends raise, of two types."""
    broken = HERE / "corpus" / "default_dtype_left_by_a_refusal.py"
    only = ["after a refusal", "isolation"]
    verdict = judge(LINEAR, broken, only=only, timing=False, device="cpu", limits=LIMITS)
    found = {f.status for f in verdict.failures}
    assert found == {Status.MUTATES, Status.CRASHED}, verdict.failures
    assert "after a refusal" in {f.test for f in verdict.failures}


def test_detection_of_anomalies_walks_no_frames_of_the_candidate() -> None:
    """PyTorch takes down where each operation was called, within the candidate's call."""
    honest = CANDIDATES / "accept_01_copy.py"
    only = ["settings", "isolation"]
    verdict = judge(LINEAR, honest, only=only, timing=False, device="cpu", limits=LIMITS)
    assert verdict.accepted, verdict.failures


def test_another_class_in_the_place_of_a_storage_is_a_patch() -> None:
    """Of what PyTorch exchanges by itself only what it puts there is let pass."""
    broken = HERE / "candidates" / "attack_storage_patched.py"
    only = ["numerics", "isolation"]
    verdict = judge(LINEAR, broken, only=only, timing=False, device="cpu", limits=LIMITS)
    assert verdict.status is Status.CHEATS, verdict.failures
