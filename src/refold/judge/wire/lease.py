"""Leases: judges side by side share a device's memory, and the processors that a clock needs.

A lease is a file that its holder keeps locked (`flock`): the kernel gives the lock back when the
holder ends, however it ends, and the next one who looks removes the file. The name begins with the
time, so the oldest waits the shortest: a large want is not passed by small ones for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_POLL = 0.1  # seconds
_WAITING, _HELD = "waiting", "held"


class NoRoom(RuntimeError):
    """What was wanted did not become free in time; the text says why."""


@dataclass(frozen=True)
class _Other:
    state: str
    amount: int


class Pool:
    """Something of which there is so much: bytes of a device, processors of a machine.

    name: of the thing, alike in every process that shares it. folder: see `folder`.
    """

    def __init__(self, name: str, folder: Path | None = None) -> None:
        plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
        self.path = (folder or home()) / plain
        self.path.mkdir(mode=0o700, exist_ok=True)

    @contextlib.contextmanager
    def take(
        self,
        amount: int,
        room: Callable[[int, int], bool],
        seconds: float,
        say: Callable[[], None] | None = None,
    ) -> Iterator[None]:
        """Hold so much inside the block.

        Args:
            amount: bytes, or processors.
            room: of what others hold and how many they are, whether there is room for it. Who is
                alone is not asked: then waiting is of no use.
            seconds: to wait at most.
            say: called once if it has to wait.

        Raises:
            NoRoom: it waited so long in vain.
        """
        name = self.path / f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}"
        with self._ledger():
            handle = os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            _write(handle, _WAITING, amount)
        try:
            self._wait(name, handle, amount, room, seconds, say)
            yield
        finally:
            with contextlib.suppress(OSError):
                name.unlink()
            os.close(handle)

    def holders(self) -> list[int]:
        """What each living holder holds; the caller's own leases are among them."""
        with self._ledger():
            return [other.amount for _, other in self._living(None) if other.state == _HELD]

    def _wait(
        self,
        name: Path,
        handle: int,
        amount: int,
        room: Callable[[int, int], bool],
        seconds: float,
        say: Callable[[], None] | None,
    ) -> None:
        end = time.monotonic() + seconds
        while True:
            with self._ledger():
                living = self._living(name)
                held = [o.amount for _, o in living if o.state == _HELD]
                first = all(path.name > name.name for path, o in living if o.state == _WAITING)
                if first and (not held or room(sum(held), len(held))):
                    _write(handle, _HELD, amount)
                    return
            if say is not None:
                say()
                say = None
            if time.monotonic() > end:
                raise NoRoom(f"{len(held)} others held {self.path.name} for {seconds:.0f} s")
            time.sleep(_POLL)

    @contextlib.contextmanager
    def _ledger(self) -> Iterator[None]:
        """One at a time looks at the files; nobody keeps this lock while waiting."""
        handle = os.open(self.path / "ledger", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _living(self, own: Path | None) -> list[tuple[Path, _Other]]:
        found = []
        for path in sorted(self.path.iterdir()):
            if path.name == "ledger" or path == own:
                continue
            try:
                handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue  # its holder has just ended
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found.append((path, _read(handle)))
            else:  # nobody holds it any more
                with contextlib.suppress(OSError):
                    path.unlink()
            finally:
                os.close(handle)
        return found


def home() -> Path:
    """The user's folder for leases: below the runtime folder, else below that for temporary files.

    Raises:
        OSError: the folder is another's.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    parent = Path(base) if base and _own(Path(base)) else Path(tempfile.gettempdir())
    folder = parent / f"refold-leases-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _own(folder):
        raise OSError(
            f"{folder}: expected a folder of your own for leases, came another's; move it"
        )
    return folder


def _own(folder: Path) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _write(handle: int, state: str, amount: int) -> None:
    os.pwrite(handle, f"{state:8} {amount:20d}\n".encode(), 0)


def _read(handle: int) -> _Other:
    state, _, amount = os.pread(handle, 64, 0).decode(errors="replace").strip().partition(" ")
    digits = amount.strip()
    return _Other(state, int(digits) if digits.isdigit() else 0)
