"""Limits of a worker, the device's clocks and compute-sanitizer, each with a stand-in tool."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import torch
from judge_paths import CANDIDATES, REFERENCES

import refold.judge
from refold.contract import load
from refold.judge.ask.request import asked
from refold.judge.clock import smi
from refold.judge.tests.process import sanitizer
from refold.judge.verdict import begin
from refold.judge.verdict.session import Session
from refold.judge.wire.host import Host, Limits

TOOL = """#!/bin/sh
while [ "$1" != --log-file ]; do shift; done
log=$2; shift 2
"$@"
"""
CLEAN = 'echo "========= ERROR SUMMARY: 0 errors" > "$log"\n'
DIRTY = 'echo "========= Invalid __global__ read of size 4 bytes" > "$log"\n'
MODES = """
import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.linear(x)
        return self.drop(y) if self.training else y {change}


def get_inputs():
    return [torch.randn(64, 32)]
"""


def tool(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def session() -> Session:
    reference = load(REFERENCES / "linear.py")
    candidate = CANDIDATES / "accept_01_copy.py"
    return begin.session(reference, *asked(candidate, candidate, device="cpu", quick=False))


def test_the_worker_has_limits_of_its_own() -> None:
    with Host(Limits(cpu_seconds=1234)) as host:
        host.request("describe", 120)
        text = Path(f"/proc/{host._process.pid}/limits").read_text()
    rows = {line[:26].strip(): line[26:].split()[:2] for line in text.splitlines()}
    assert rows["Max cpu time"] == ["1234", "1234"]
    assert rows["Max core file size"] == ["0", "0"]


def test_clocks_are_read_or_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert smi.read(torch.device("cpu")) == ()
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = smi.query()
    assert len(missing) == 1 and "FileNotFoundError" in smi.note(missing, missing)
    tool(tmp_path, "nvidia-smi", '#!/bin/sh\necho "1980, 120.5, 0x0000000000000000, 41"\n')
    read = smi.query("GPU-1")
    assert read == ("1980", "120.5", "0x0000000000000000", "41")
    assert "SM clock MHz 1980 -> 1980" in smi.note(read, read)
    assert smi.note(read, missing).startswith("no clocks")
    tool(tmp_path, "nvidia-smi", "#!/bin/sh\necho Unknown field\nexit 2\n")
    assert "exit code 2" in smi.note(smi.query(), read)


def test_sanitizer_errors_are_the_candidates_own(tmp_path: Path) -> None:
    one = session()
    assert sanitizer.memcheck(one) == "" and not one.notes
    assert sanitizer.inspect(one, tool(tmp_path, "clean", TOOL + CLEAN)) == ""
    assert not one.notes
    assert sanitizer.inspect(one, tool(tmp_path, "both", TOOL + DIRTY)) == ""
    assert "the reference too" in one.notes.pop()
    seen = tmp_path / "seen"
    once = f"if [ -e {seen} ]; then\n{CLEAN}else\n{DIRTY}fi\ntouch {seen}\n"
    error = sanitizer.inspect(one, tool(tmp_path, "mine", TOOL + once))
    assert error == "Invalid __global__ read of size 4 bytes" and not one.notes
    assert sanitizer.inspect(one, tool(tmp_path, "dead", "#!/bin/sh\nexit 3\n")) == ""
    assert "gave no result" in one.notes.pop()


@pytest.mark.parametrize("frugal", [False, True])
def test_numerics_looks_at_the_other_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frugal: bool
) -> None:
    if frugal:
        monkeypatch.setattr(begin, "_SLOW", 0.0)
    reference, copy, wrong = (tmp_path / f"{n}.py" for n in ("ref", "copy", "wrong"))
    reference.write_text(MODES.format(name="Model", change=""))
    copy.write_text(MODES.format(name="ModelNew", change=""))
    wrong.write_text(MODES.format(name="ModelNew", change="* 1.001"))
    good = refold.judge.judge(reference, copy, only="numerics")
    assert good.accepted and "the file's inputs, eval" in {e.case for e in good.errors}
    bad = refold.judge.judge(reference, wrong, only="numerics")
    assert {f.case for f in bad.failures} == {"the file's inputs, eval"}
    assert bad.status.name == "WRONG_MODE"


@pytest.mark.gpu
def test_clocks_of_the_device_are_read() -> None:
    read = smi.read(torch.device("cuda"))
    assert len(read) == 4, read
    assert float(read[0]) > 0 and float(read[1]) > 0 and read[2].startswith("0x")
    assert smi.note(read, read).startswith("device, before and after: SM clock MHz ")


@pytest.mark.gpu
def test_a_timed_judgement_on_the_device() -> None:
    verdict = refold.judge.judge(
        REFERENCES / "linear.py", CANDIDATES / "accept_01_copy.py", device="cuda"
    )
    assert verdict.accepted, verdict.failures
    assert verdict.timing is not None
    note = verdict.timing.note
    assert "device, before and after" in note and "in a CUDA graph: eager" in note, note
    assert "max-autotune" in verdict.timing.compiled, verdict.timing.compiled_notes
    assert not [n for n in verdict.notes if "compute-sanitizer" in n], verdict.notes
