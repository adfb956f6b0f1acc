"""What a reference's file sets as it is imported, switches and PyTorch's generator: a candidate may
set the same."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch
from judge_paths import REFERENCES

from refold.judge import Status, judge
from refold.judge.worker import flags

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


@pytest.mark.parametrize(
    ("ahead", "behind", "status"),
    [
        ("torch.manual_seed(5)", "torch.manual_seed(5)", Status.ACCEPTED),
        ("drawn = torch.randn(7)", "drawn = torch.randn(7)", Status.ACCEPTED),
        ("torch.manual_seed(5)", "", Status.ACCEPTED),
        ("torch.manual_seed(5)", "torch.manual_seed(6)", Status.MUTATES),
        ("torch.manual_seed(5)", "torch.manual_seed(5); drawn = torch.randn(1)", Status.MUTATES),
        ("", "torch.manual_seed(5)", Status.MUTATES),
    ],
)
def test_where_a_reference_leaves_the_generator(
    tmp_path: Path, ahead: str, behind: str, status: Status
) -> None:
    reference, candidate = tmp_path / "ref.py", tmp_path / "cand.py"
    reference.write_text(f"{GOOD}\n{ahead}\n")
    candidate.write_text(f"{GOOD}\n{behind}\n\n\nclass ModelNew(Model):\n    pass\n")
    found = judge(reference, candidate, quick=True, only="flags", timing=False, device="cpu")
    assert found.status is status, found.failures


@pytest.mark.parametrize(
    ("limit", "compiled", "alike"),
    [(2000, True, True), (2000, False, False), (5000, True, False)],
)
def test_the_depth_that_a_compiler_sets(
    monkeypatch: pytest.MonkeyPatch, limit: int, compiled: bool, alike: bool
) -> None:
    """PyTorch's own raises the limit of recursion to 2000 wherever it compiles: who compiles a
    function has not done it."""
    monkeypatch.setattr(flags, "_DEPTH", 1000)
    monkeypatch.setattr(sys, "getrecursionlimit", lambda: 1000)
    before = flags.snapshot()
    if compiled:
        name = "torch._inductor.compile_fx"
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    else:
        monkeypatch.delitem(sys.modules, "torch._inductor.compile_fx", raising=False)
    monkeypatch.setattr(sys, "getrecursionlimit", lambda: limit)
    moved = flags.difference(before, flags.snapshot())
    assert (moved == []) is alike and all("recursion limit" in text for text in moved)


def test_an_override_in_the_place_of_another_name_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many names are registered as before."""
    names = set(torch.library._impls)
    monkeypatch.setattr(torch.library, "_impls", names)
    before = flags._overriding()
    names.remove(next(n for n in names if not n.startswith("aten/")))
    names.add("aten/add.Tensor/CPU")
    assert set(flags._overriding()) - set(before) == {"aten/add.Tensor/CPU"}
