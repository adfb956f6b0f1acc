"""Leases of a device: shared side by side, given back by the dead, waited for and given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from judge_paths import CANDIDATES, REFERENCES

from refold.judge import Status, judge
from refold.judge.verdict import room
from refold.judge.wire import lease
from refold.judge.wire.host import Host
from refold.judge.wire.lease import NoRoom, Pool
from refold.judge.wire.memory import Starved, exhausted

HOLDER = """
import importlib.util, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("lease", sys.argv[1])
lease = importlib.util.module_from_spec(spec)
sys.modules["lease"] = lease
spec.loader.exec_module(lease)
pool = lease.Pool("memory", Path(sys.argv[2]))
with pool.take(1, lambda held, others: held + 1 <= 2, 300.0):
    assert sum(pool.holders()) <= 2
    print("held", flush=True)
    time.sleep(float(sys.argv[3]))
    assert sum(pool.holders()) <= 2
"""


def holder(folder: Path, seconds: float) -> subprocess.Popen[str]:
    given = [sys.executable, "-c", HOLDER, str(lease.__file__), str(folder), str(seconds)]
    return subprocess.Popen(given, stdout=subprocess.PIPE, text=True)


def test_several_share_and_the_dead_give_back(tmp_path: Path) -> None:
    """Two at once have room. One that would hold for ever is killed; the others go on."""
    dead = holder(tmp_path, 600.0)
    assert dead.stdout is not None and dead.stdout.readline() == "held\n"
    others = [holder(tmp_path, 0.05) for _ in range(5)]
    assert others[0].wait(120) == 0  # beside the first
    os.kill(dead.pid, signal.SIGKILL)
    dead.wait()
    assert [one.wait(120) for one in others] == [0] * 5
    assert Pool("memory", tmp_path).holders() == []
    assert [p.name for p in (tmp_path / "memory").iterdir()] == ["ledger"]
    for one in (dead, *others):
        assert one.stdout is not None
        one.stdout.close()


def test_who_waits_in_vain_is_told_and_who_is_alone_need_not(tmp_path: Path) -> None:
    pool, told = Pool("a b/c", tmp_path), []
    assert pool.path.parent == tmp_path
    with pool.take(9, lambda *_: False, 0.0):  # alone: there is nothing to wait for
        assert pool.holders() == [9]
        with (
            pytest.raises(NoRoom, match="1 others held"),
            pool.take(1, lambda *_: False, 0.0, lambda: told.append("waiting")),
        ):
            raise AssertionError
        with pool.take(1, lambda held, others: (held, others) == (9, 1), 0.0):
            assert sorted(pool.holders()) == [1, 9]
    assert told == ["waiting"] and pool.holders() == []


def test_the_first_who_waits_is_the_first_who_gets(tmp_path: Path) -> None:
    """A large want is not passed by a small one that would fit."""
    pool, order = Pool("x", tmp_path), []
    waiting = threading.Event()

    def large() -> None:
        with pool.take(8, lambda held, _: held + 8 <= 8, 120.0, waiting.set):
            order.append("large")

    first = threading.Thread(target=large)
    with pool.take(4, lambda *_: True, 0.0):
        first.start()
        assert waiting.wait(60)
        with pytest.raises(NoRoom), pool.take(1, lambda *_: True, 0.0):
            order.append("small")
    first.join(60)
    assert order == ["large"]


def test_a_folder_of_another_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert lease.home().parent == tmp_path
    lease.home().rmdir()
    lease.home().parent.joinpath(lease.home().name).rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"refold-leases-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="came another's"):
        lease.home()
    one = room.Room(torch.device("cpu"))
    with one.memory(1):
        pass
    assert "no lease of the memory" in one.notes[0]


def test_eight_share_a_device_for_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wants two fifths of the device; nine tenths may be leased."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(room, "extent", lambda device: (100, 100))
    cpu, done, most = torch.device("cpu"), [], []

    def judgement(number: int) -> None:
        with room.Room(cpu).memory(40):
            held = Pool("memory-cpu").holders()
            most.append(len(held))
            assert sum(held) <= 90
        done.append(number)

    threads = [threading.Thread(target=judgement, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(done) == list(range(8)) and max(most) <= 2


def test_who_finds_no_room_is_starved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(room, "_PATIENCE", 0.0)
    monkeypatch.setattr(room, "_CLOCK_PATIENCE", 0.0)
    monkeypatch.setattr(room, "extent", lambda device: (10, 100))  # others use the device, too
    words: list[str] = []
    one = room.Room(torch.device("cpu"), words.append)
    processors = len(os.sched_getaffinity(0))
    with one.memory(40), one.clock(processors):
        with pytest.raises(Starved, match="no room: 1 others held memory-cpu"), one.memory(20):
            raise AssertionError
        with pytest.raises(Starved, match="no room: 1 others held clock-cpu"), one.clock(1):
            raise AssertionError
        with one.memory(10):  # fits
            pass
    assert words == ["waiting for memory", "waiting for clock"] and not one.notes


GPU = "GPU 0 has a total capacity of 79.11 GiB of which 1.00 GiB is free."


@pytest.mark.parametrize(
    ("kind", "message", "is_so"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB", True),
        ("MemoryError", "", True),
        ("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory: you", True),
        ("AcceleratorError", "CUDA error: out of memory", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling", True),
        ("RuntimeError", "shape '[2]' is invalid for input of size 3", False),
        ("ValueError", "a memory of 3 is expected", False),
        ("Raised", "out of memory", False),
        # what no machine has is no shortage: an integer said how much it was to be
        (
            "RuntimeError",
            "can't allocate memory: you tried to allocate 8796093022280 bytes.",
            False,
        ),
        ("RuntimeError", "can't allocate memory: you tried to allocate 65536 bytes.", True),
        ("OutOfMemoryError", f"Tried to allocate 512.00 MiB. {GPU}", True),
        ("OutOfMemoryError", f"Tried to allocate 64.00 TiB. {GPU}", False),
    ],
)
def test_what_says_that_memory_is_exhausted(kind: str, message: str, is_so: bool) -> None:
    assert exhausted(kind, message) is is_so


def test_exhausted_memory_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one, tries, relieved = room.Room(torch.device("cpu")), [], []
    monkeypatch.setattr(one, "breathe", lambda: None)

    def work(failing: int) -> str:
        tries.append(failing)
        if len(tries) <= failing:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "done"

    assert one.patiently(lambda: work(2), lambda: relieved.append(1)) == "done"
    assert len(tries) == 3 and len(relieved) == 2
    tries.clear()
    with pytest.raises(Starved, match=r"3 times \(CUDA out of memory\); \d+ MiB are free"):
        one.patiently(lambda: work(9))
    with pytest.raises(ValueError, match="other"):
        one.patiently(lambda: int("other"))


NEEDY = """
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        tries = Path(__file__).with_suffix(".tries")
        count = len(tries.read_text()) if tries.is_file() else 0
        tries.write_text("x" * (count + 1))
        if count < {failing}:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
        return F.gelu(self.linear(x))
"""


@pytest.mark.parametrize(("failing", "status"), [(2, Status.ACCEPTED), (99, Status.INCONCLUSIVE)])
def test_a_candidate_without_memory_is_not_condemned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int, status: Status
) -> None:
    monkeypatch.setattr(room.Room, "breathe", lambda self: None)
    path = tmp_path / "cand.py"
    path.write_text(NEEDY.format(failing=failing))
    tests = ["contract", "mutation"] if failing > 9 else "contract"
    verdict = judge(
        REFERENCES / "linear.py", path, quick=True, only=tests, timing=False, device="cpu"
    )
    assert verdict.status is status, verdict.failures
    assert {f.status for f in verdict.failures} <= {Status.INCONCLUSIVE}
    assert all("memory was exhausted 3 times" in f.detail for f in verdict.failures)


def test_a_reference_without_memory_is_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room.Room, "breathe", lambda self: None)
    text = (REFERENCES / "linear.py").read_text()
    forward = "return torch.nn.functional.gelu(self.linear(x))"
    assert forward in text
    path = tmp_path / "ref.py"
    path.write_text(text.replace(forward, "raise torch.OutOfMemoryError('CUDA out of memory')"))
    verdict = judge(path, CANDIDATES / "accept_01_copy.py", quick=True, device="cpu")
    assert verdict.status is Status.INCONCLUSIVE and not verdict.tests
    assert "memory was exhausted 3 times" in verdict.summary


def test_a_worker_that_the_system_ended_is_not_condemned(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter(range(9))
    monkeypatch.setattr("refold.judge.wire.memory.killed", lambda: next(kills))
    with Host(threads=1) as host:
        host.request("describe", 60)
        os.kill(host.pid, signal.SIGKILL)
        with pytest.raises(Starved, match="the machine's memory was exhausted"):
            host.request("describe", 60)
