"""Signals to processes that may be gone, and how long processes waited for a processor."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable


class Waits:
    """How long some processes could have gone on and had no processor. On a busy machine a limit
    by the wall alone would end who works as fast as on another."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], int] = {}
        self._asked = time.monotonic()

    def more(self, pids: Iterable[int]) -> float:
        """Seconds that the thread waited which did so for longest since this was asked last."""
        found = {(pid, thread): n for pid in pids for thread, n in _waited(pid)}
        longest = max((n - self._seen[k] for k, n in found.items() if k in self._seen), default=0)
        now = time.monotonic()
        passed, self._asked, self._seen = now - self._asked, now, found
        return min(longest / 1e9, passed)


def _waited(pid: int) -> list[tuple[str, int]]:
    """A process's threads, and the nanoseconds that each waited for a processor."""
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                    waited = file.read().split()[1]
                found.append((thread, int(waited)))
    return found


def send(pid: int, number: int) -> None:
    """A signal to a process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(pid: int, number: int) -> None:
    """A signal to a group of processes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
