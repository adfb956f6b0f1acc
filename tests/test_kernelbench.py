"""The measure of KernelBench's files: how sizes are halved, how rows are summed up."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from refold.judge import Status

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import judge_kernelbench
import kernelbench

FILE = """
import torch
from torch import nn

rows = 4096
height = width = 512
inner = {inner}
groups = 8
unused = 1 << 20
least = 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(inner, inner)
        self.norm = nn.GroupNorm(groups, inner)

    def forward(self, x):
        assert x.shape[1] >= least
        return self.norm(self.linear(x).flatten(0, 1))


def get_inputs():
    return [torch.rand(rows, height, inner)]
"""


def test_sizes_are_halved_the_largest_first(tmp_path):
    path = tmp_path / "1_file.py"
    path.write_text(FILE.format(inner=1024))
    halved = dict(pair.split("=") for pair in kernelbench.sizes(path))
    # what changes no shape stays; rows come before places, and places before features
    assert set(halved) == {"rows", "inner", "height"} and len(set(halved.values())) <= 2
    rows, places, inner = (int(halved[name]) for name in ("rows", "height", "inner"))
    assert rows <= places <= inner <= 2 * rows
    found = kernelbench.shapes(kernelbench.load(path, halved))
    assert found.inputs == [(rows, places, inner)] and found.seconds <= kernelbench.EAGER_S


def test_sizes_that_leave_no_model_that_runs_stay(tmp_path):
    path = tmp_path / "1_file.py"
    path.write_text(FILE.format(inner=1024).replace("least = 1", "least = 400"))
    halved = dict(pair.split("=") for pair in kernelbench.sizes(path))
    assert "height" not in halved and {"rows", "inner"} <= set(halved)


def row(system, commit="b", **more):
    return {"system": system, "commit": commit, "exit": 0, "sizes": "full size"} | more


def test_summary_counts_each_file_once():
    rows = [
        row("L1/1_a", "a", mode="both", verdict="ACCEPTED", speedup=9.0),
        row("L1/1_a", mode="train", verdict="ACCEPTED", speedup=4.0),
        row("L1/1_a", mode="eval", verdict="ACCEPTED", speedup=100.0),
        row("L1/2_b", mode="train", verdict="kept: not faster"),
        row("L1/2_b", mode="eval", verdict="ACCEPTED", speedup=7.0),
        row("L1/3_c", exit=3, verdict="the kernels were not faster"),
        row("L1/6_f", mode="both", verdict="kept: slower than torch.compile", to_best=0.5),
        row("L1/7_g", mode="both", verdict="ACCEPTED", speedup=8.0, to_best=2.0),
        row("L1/5_e", mode="both", verdict="INCONCLUSIVE", speedup=1000.0),
        row("L1/4_d", exit=124, verdict="no end after 600 s"),
    ]
    told = kernelbench.summary(rows)
    assert told.startswith("of 7 files: 2 accepted and faster, largest 4")
    # 4 * 0.5 * 2 over seven files
    assert "4 kept or constant; 1 failed L1/4_d" in told and told.endswith("all others as 1: 1.22")


def test_a_file_that_hangs_ends(tmp_path, monkeypatch):
    path = tmp_path / "1_file.py"
    path.write_text("import time\ntime.sleep(100)\n" + FILE.format(inner=32))
    monkeypatch.setattr(kernelbench, "sizes", lambda path: ["rows=4"])
    system = kernelbench.System("L1/1_file", str(path))
    (found,) = kernelbench.measured(path, system, 0.1, limit=1.0)
    assert found["exit"] == 124 and "no end after 1 s" in kernelbench.line([found])


def test_files_are_taken_in_order(tmp_path):
    folder = tmp_path / "KernelBench" / "level2"
    folder.mkdir(parents=True)
    for name in ("10_b.py", "9_a.py", "no_number.py"):
        (folder / name).touch()
    for root in (tmp_path, tmp_path / "KernelBench"):
        found = kernelbench.files(root, 2, [])
        assert [p.name for p in found] == ["9_a.py", "10_b.py"]
    assert [p.name for p in kernelbench.files(tmp_path, 2, [10])] == ["10_b.py"]


@pytest.mark.parametrize("value", ["", None])
def test_errors_that_are_not_known_are_said_so(value):
    assert kernelbench._short(value) == "?"


def run_judge(monkeypatch, tmp_path, *arguments):
    given = ["", str(tmp_path), "--output", str(tmp_path / "rows"), *arguments]
    monkeypatch.setattr(sys, "argv", given)
    return judge_kernelbench.main()


def test_files_are_judged_against_themselves_and_a_run_goes_on(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "level1"
    folder.mkdir()
    for i in range(3):
        text = FILE.format(inner=1024).replace(
            "super().__init__()", "super(Model, self).__init__()"
        )
        (folder / f"{i}_file.py").write_text(text)
    seen = []

    def judged(path, candidate, **options):
        text = candidate.read_text()
        assert "class ModelNew(nn.Module)" in text and "super(ModelNew, self)" in text
        seen.append(path.name)
        if path.name.startswith("1"):
            raise RuntimeError("two\nlines")
        return types.SimpleNamespace(
            accepted=True, status=Status.ACCEPTED, failures=(), tests=(), assumptions=(), speed=None
        )

    monkeypatch.setattr(judge_kernelbench, "judge", judged)
    assert run_judge(monkeypatch, tmp_path, "--level", "1") == 1
    told = capsys.readouterr().out
    assert "L1/1_file: CRASH: RuntimeError: two lines" in told
    assert told.endswith("of 3 files: 2 ACCEPTED, 1 CRASH\n")
    run_judge(monkeypatch, tmp_path, "--level", "1")
    run_judge(monkeypatch, tmp_path, "--level", "1", "--again")
    assert seen == ["0_file.py", "1_file.py", "2_file.py", "1_file.py"]
