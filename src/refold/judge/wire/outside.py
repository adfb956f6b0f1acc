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
        return Outside({path: _bytes(path) for path in files}, _scheduled(processes))

    def again(self, *processes: int) -> Outside:
        """The same files as they were then; this process and others as they are now."""
        return Outside(self.files, _scheduled(processes))

    def present(self) -> dict[int, tuple[object, ...]]:
        """How the processes run now."""
        return {pid: forkserver.scheduling(pid) for pid in self.scheduled}

    def moved(self, *others: int) -> list[str]:
        """Which processes run otherwise than they did; `others` are to run as this one did."""
        found = []
        own = self.scheduled.get(os.getpid(), ())
        for pid, before in (*self.scheduled.items(), *((pid, own) for pid in others)):
            now = forkserver.scheduling(pid)
            if now and before and now != before:
                found.append(f"process {pid} ran under {before}, now under {now}")
        if found:
            forkserver.retire()  # the next workers shall not inherit it
        return found

    def written(self) -> list[str]:
        """Which files are not as they were."""
        return [
            f"{path} was written while it was judged"
            for path, text in self.files.items()
            if _bytes(path) != text
        ]


def _scheduled(processes: Iterable[int]) -> dict[int, tuple[object, ...]]:
    return {pid: forkserver.scheduling(pid) for pid in (os.getpid(), *processes)}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
