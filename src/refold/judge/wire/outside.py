"""What a candidate may change outside its worker: scheduling of other processes, judged files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from refold.judge.wire import forkserver


@dataclass(frozen=True)
class Outside:
    """As it was when the judgement began."""

    files: dict[Path, bytes] = field(default_factory=dict)
    scheduled: dict[int, tuple[object, ...]] = field(default_factory=dict)

    @staticmethod
    def now(files: Iterable[Path], processes: Iterable[int]) -> Outside:
        """Of these files, this process and others."""
        pids = (os.getpid(), *processes)
        return Outside(
            {path: _bytes(path) for path in files},
            {pid: forkserver.scheduling(pid) for pid in pids},
        )

    def complaints(self, *others: int) -> list[str]:
        """What is not as it was; the processes `others` are to run as this one did."""
        found = []
        own = self.scheduled.get(os.getpid(), ())
        for pid, before in (*self.scheduled.items(), *((pid, own) for pid in others)):
            now = forkserver.scheduling(pid)
            if now and before and now != before:
                found.append(f"process {pid} ran under {before}, now under {now}")
        if found:
            forkserver.retire()  # the next workers shall not inherit it
        for path, text in self.files.items():
            if _bytes(path) != text:
                found.append(f"{path} was written while it was judged")
        return found


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
