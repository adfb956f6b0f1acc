"""KernelBench's files: rows of the suite are kept, files are judged against themselves."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

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


def test_rows_of_the_suite_are_added_to_the_record(tmp_path, monkeypatch):
    path, rows = tmp_path / "record.csv", tmp_path / "kernelbench_2" / "rows.jsonl"
    kept = {"task": "L2/1_a", "sizes": "", "status": "KEPT", "reason": "no gain", "modes": []}
    rows.parent.mkdir()
    rows.write_text(json.dumps(kept | {"measured": {}}) + "\n")
    monkeypatch.setattr(kernelbench, "HERE", tmp_path / "bench")
    monkeypatch.setattr(kernelbench, "commit", lambda: "b")
    (tmp_path / "out").symlink_to(tmp_path)
    given = []
    monkeypatch.setattr(kernelbench.cli, "main", lambda arguments: given.append(arguments) or 0)
    path.write_text("system,verdict,commit\nL2/1_a,of old,a\nL2/1_a,of now,b\n")
    arguments = ["", "/kb", "2", "--record", str(path), "--only", "1", "--no-compile"]
    monkeypatch.setattr(sys, "argv", arguments)
    assert kernelbench.main() == 0
    assert given[0][:6] == ["suite", "--kernelbench", "/kb", "--level", "2", "--shrink"]
    assert given[0][-3:] == ["--only", "1", "--no-compile"]
    found = [(r["system"], r["verdict"], r["commit"]) for r in kernelbench.Record(path).before]
    assert found == [("L2/1_a", "of old", "a"), ("L2/1_a", "kept: no gain", "b")]


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
