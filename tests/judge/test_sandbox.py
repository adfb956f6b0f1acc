"""The sandbox: what reaches out is refused; compilers run; what is not at hand is said."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from judge_paths import REFERENCES

from refold.judge import Status, Verdict, judge
from refold.judge.wire.host import Host
from refold.judge.worker import sandbox

HEAD = """
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import torch.nn.functional as F
from torch import nn

here, judge = Path(__file__), int({judge})


def attempt():
    {attempt}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        attempt()

    def forward(self, x):
        return F.gelu(self.linear(x))
"""
ATTEMPTS = {
    "a file elsewhere": "here.with_name('outside').write_text('x')",
    "another's file": "here.write_text('')",
    "a file removed": "here.unlink()",
    "a socket": "socket.socket()",
    "a local socket": "socket.socket(socket.AF_UNIX)",
    "a signal": "os.kill(judge, 0)",
    "another's memory": "open(f'/proc/{judge}/mem', 'rb').read(1)",
    "another's rank": "os.setpriority(os.PRIO_PROCESS, judge, 5)",
    "through a child": "subprocess.run(['touch', here.with_name('outside')], check=True)",
}
HONEST = """
    with tempfile.TemporaryDirectory() as name:
        source, made = Path(name) / "a.c", Path(name) / "a.so"
        source.write_text("int f(void) { return 1; }")
        compile = ["cc", "-shared", "-fPIC", "-o", made, source]
        subprocess.run(compile, check=True, stdout=subprocess.DEVNULL)
        child = subprocess.Popen(["sleep", "60"])
        child.send_signal(signal.SIGKILL)
        child.wait()
        a, b = socket.socketpair()
        with open("/dev/null", "w") as nothing, a, b:
            nothing.write("x")
"""


@pytest.fixture(scope="module")
def at_hand(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the kernel lacks; a test of what it refuses needs all of it."""
    with Host(threads=1) as host:
        folder = str(tmp_path_factory.mktemp("sandbox"))
        missing: list[str] = host.request("sandbox", 60, folder=folder, device="cpu")
    return missing


def verdict(folder: Path, attempt: str, **options: bool) -> Verdict:
    path = folder / "cand.py"
    path.write_text(HEAD.format(judge=os.getpid(), attempt=attempt))
    files = (REFERENCES / "linear.py", path)
    return judge(*files, quick=True, only="contract", timing=False, device="cpu", **options)


def test_what_reaches_out_is_refused(tmp_path: Path, at_hand: list[str]) -> None:
    """Each attempt is tried in the one worker; every one must end in an error."""
    if at_hand:
        pytest.skip("; ".join(at_hand))
    lines = "\n".join(_tried(ATTEMPTS))
    found = verdict(tmp_path, f"done = []\n{lines}\n    assert not done, done", sandbox=True)
    # the attempts are named; none of them did anything
    assert {f.test for f in found.failures} == {"isolation"}, found.failures
    assert found.environment["sandbox"] == "whole"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cand.py"]
    # the same outside: what it is kept from can be done
    open_ = {k: v for k, v in ATTEMPTS.items() if k in ("a file elsewhere", "a socket", "a signal")}
    lines = "\n".join(_tried(open_))
    found = verdict(tmp_path, f"done = []\n{lines}\n    assert not done, done")
    assert found.status is Status.WRONG_CONTRACT and found.environment["sandbox"] == "none"
    assert all(name in found.failures[0].detail for name in open_), found.failures


def _tried(attempts: dict[str, str]) -> Iterator[str]:
    for name, text in attempts.items():
        yield "    try:"
        yield f"        {text}"
        yield f"        done.append({name!r})"
        yield "    except (OSError, subprocess.CalledProcessError):"
        yield "        pass"


def test_an_attempt_that_raises_is_told(tmp_path: Path, at_hand: list[str]) -> None:
    if at_hand:
        pytest.skip("; ".join(at_hand))
    found = verdict(tmp_path, ATTEMPTS["a file elsewhere"], sandbox=True)
    assert found.status is Status.WRONG_CONTRACT
    assert "PermissionError" in found.failures[0].detail
    assert not (tmp_path / "outside").exists()


def test_an_honest_candidate_compiles_in_it(tmp_path: Path) -> None:
    found = verdict(tmp_path, HONEST.lstrip(), sandbox=True)
    assert found.accepted, found.failures


def test_what_is_not_at_hand_is_said(tmp_path: Path) -> None:
    """The words of a kernel that has neither come from the worker; the verdict tells them."""
    missing = sandbox._landlock(_Kernel(), str(tmp_path))  # type: ignore[arg-type]
    missing += sandbox._seccomp(_Kernel())  # type: ignore[arg-type]
    assert [text.split(":")[0] for text in missing] == [
        "Landlock is not at hand",
        "seccomp is not at hand",
    ]


class _Kernel:
    """A kernel that knows no such system call."""

    def syscall(self, *_: object) -> int:
        return -1


def test_the_filter_refuses_what_it_names() -> None:
    """Run by hand: the numbers in, the answers out."""
    refused = [41, 101, 425]
    text = sandbox.program(0xC000003E, refused)
    for number in (0, 1, 40, 41, 42, 101, 425, 1 << 30):
        wrong = number in refused or number >= 1 << 30
        assert _answer(text, number, 0xC000003E) == (0x00050001 if wrong else 0x7FFF0000)
        assert _answer(text, number, 0x40000003) == 0x00050001


def _answer(text: bytes, number: int, machine: int) -> int:
    at, held = 0, 0
    while True:
        code, yes, no, value = struct.unpack_from("<HBBI", text, 8 * at)
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            held = {0: number, 4: machine}[value]
        else:
            at += yes if (held == value if code == 0x15 else held >= value) else no
