"""Runs one command within limits of time and memory, and leaves no process of it behind.

    python supervisor.py JSON

A process of its own, without refold and PyTorch, so that it starts in milliseconds and has nothing
that a task could take with it. It ends the command and all that the command started: children of
children that were let go are handed to it by the kernel, and what bears the task's token in its
environment is ended, too. It does so when the command ends, when a limit is passed, when it is told
to (SIGTERM), and when its own parent is gone, however that ended: standard input closes then.

It writes one JSON object to the file `end`: `code` of the command (negative: a signal), `ended`
(empty, "time", "memory", "stopped"), `seconds`, `peak` bytes of memory, `said`: what the command
printed, the middle left out where it is long. It makes the folder of the task's files, and removes
it when the parent has read them and closes standard input, or is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Any

TOKEN = "REFOLD_SUITE_TASK"
_LOOK = 0.1  # seconds between two looks
_KEEP = 1 << 15  # bytes of what is printed, from each end
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GONE = (OSError, IndexError, ValueError)  # a process ends while its files are read
_PATIENCE = 20.0  # seconds in which processes that were killed are to be gone


def parents() -> dict[int, int]:
    """The parent of each process."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(*_GONE), open(f"/proc/{name}/stat", "rb") as file:
                # the name in parentheses may hold anything
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def below(root: int) -> list[int]:
    """The processes that descend from one."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found, left = [], deque([root])
    while left:
        for pid in children.get(left.popleft(), ()):
            found.append(pid)
            left.append(pid)
    return found


def bearers(token: str) -> list[int]:
    """The user's processes whose environment has a task's token; this one is none of them."""
    wanted = f"{TOKEN}={token}".encode()
    found = []
    for pid in parents():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if pid != os.getpid() and wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def memory(pids: list[int], enough: int) -> int:
    """Bytes that processes hold together. What they share is counted for each of them, unless that
    would be `enough` or more: then each has its share."""
    total = 0
    for pid in pids:
        with contextlib.suppress(*_GONE), open(f"/proc/{pid}/statm", "rb") as file:
            total += int(file.read().split()[1]) * _PAGE
    if total < enough:
        return total
    total = 0
    for pid in pids:
        with contextlib.suppress(*_GONE), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    total += int(line.split()[1]) << 10
    return total


def end_all(token: str) -> None:
    """Kill what descends from this process or bears the token, until there is none."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        left = {*below(os.getpid()), *bearers(token)}
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not left:
            return
        time.sleep(0.01)


class Printed:
    """The first and the last of what came through a pipe."""

    def __init__(self) -> None:
        self.first, self.last, self.left_out = b"", b"", 0

    def add(self, more: bytes) -> None:
        room = _KEEP - len(self.first)
        self.first += more[:room]
        kept = self.last + more[room:] if room > 0 else self.last + more
        self.left_out += max(0, len(kept) - _KEEP)
        self.last = kept[-_KEEP:]

    def text(self) -> str:
        middle = f"\n... {self.left_out} bytes left out ...\n".encode() if self.left_out else b""
        return (self.first + middle + self.last).decode(errors="replace")


def reap(child: int) -> int | None:
    """Take leave of processes that have ended and were handed to us; the code of `child`, if it
    is among them."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return None
        if ended is None:
            return None
        if ended.si_pid == child:
            exited = ended.si_code == os.CLD_EXITED
            return ended.si_status if exited else -ended.si_status


def supervise(spec: dict[str, Any]) -> dict[str, Any]:
    """spec: command, environment, seconds, memory (bytes), token, processors (or none), `folder` of
    the task's files, and in it the file `end`."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to us
    told: list[bool] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: told.append(True))
    if spec["processors"]:
        os.sched_setaffinity(0, spec["processors"])
    out, into = os.pipe()
    began = looked = time.monotonic()
    child = subprocess.Popen(
        spec["command"],
        stdin=subprocess.DEVNULL,
        stdout=into,
        stderr=into,
        start_new_session=True,
        env={**os.environ, **spec["environment"], TOKEN: spec["token"]},
    )
    os.close(into)
    os.set_blocking(out, False)
    printed, peak, ended, waited = Printed(), 0, "", [out, 0]
    code: int | None = None
    while code is None and not ended:
        ready = select.select(waited, [], [], _LOOK)[0]
        if out in ready:
            more = os.read(out, 1 << 16)
            printed.add(more)
            if not more:
                waited.remove(out)
        if told or (0 in ready and not os.read(0, 1 << 10)):
            ended = "stopped"
        now = time.monotonic()
        if now - looked < _LOOK:  # who prints all the time is not looked at all the time
            continue
        looked = now
        held = memory(below(os.getpid()), spec["memory"])
        peak = max(peak, held)
        if held > spec["memory"]:
            ended = "memory"
        elif now - began > spec["seconds"]:
            ended = "time"
        code = reap(child.pid)
    seconds = time.monotonic() - began
    end_all(spec["token"])
    with contextlib.suppress(OSError):
        while more := os.read(out, 1 << 16):
            printed.add(more)
    said = printed.text()
    return {"code": code, "ended": ended, "seconds": seconds, "peak": peak, "said": said}


def main() -> None:
    spec = json.loads(sys.argv[1])
    os.mkdir(spec["folder"], 0o700)
    found = supervise(spec)
    partial = f"{spec['end']}.partial"
    with open(partial, "w") as file:
        json.dump(found, file)
    os.replace(partial, spec["end"])
    while os.read(0, 1 << 10):
        pass
    shutil.rmtree(spec["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
