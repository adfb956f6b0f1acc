"""Processes side by side take turns: who times is alone, the others wait where they may.

On when REFOLD_TURNS names a folder that all of them share. A process that works holds one lock with
the others; who wants to time asks by a second one, and gets the first alone when the others have
come to a place where they may wait. The kernel gives locks back when a process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class Turns:
    """One process's part. Not for several threads."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._work, self._wish = (
            os.open(folder / name, os.O_CREAT | os.O_RDWR, 0o600) for name in ("work", "wish")
        )
        self._alone = False
        fcntl.flock(self._work, fcntl.LOCK_SH)

    def pause(self) -> None:
        """Wait while another process times."""
        if self._alone:
            return
        try:
            fcntl.flock(self._wish, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._work, fcntl.LOCK_UN)
            fcntl.flock(self._wish, fcntl.LOCK_SH)
        fcntl.flock(self._wish, fcntl.LOCK_UN)
        fcntl.flock(self._work, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other process works inside the block, once all have come to a pause."""
        if self._alone:
            yield
            return
        fcntl.flock(self._work, fcntl.LOCK_UN)
        fcntl.flock(self._wish, fcntl.LOCK_EX)
        fcntl.flock(self._work, fcntl.LOCK_EX)
        self._alone = True
        try:
            yield
        finally:
            self._alone = False
            fcntl.flock(self._work, fcntl.LOCK_SH)
            fcntl.flock(self._wish, fcntl.LOCK_UN)


_turns: Turns | None = None


def take_part() -> None:
    """From now on this process waits in `pause` while others time."""
    global _turns
    folder = os.environ.get("REFOLD_TURNS")
    if folder and _turns is None:
        _turns = Turns(Path(folder))


def pause() -> None:
    """A place where this process may wait; see `Turns.pause`."""
    if _turns is not None:
        _turns.pause()


def alone() -> contextlib.AbstractContextManager[None]:
    """No other process that takes part works inside the block; see `Turns.alone`."""
    return contextlib.nullcontext() if _turns is None else _turns.alone()
