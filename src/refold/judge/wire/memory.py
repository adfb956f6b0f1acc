"""Memory of processes and of the machine, and errors: memory is exhausted, the device is lost."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import threading
from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_NO_MEMORY = ("out of memory", "not enough memory", "allocate memory", "_STATUS_ALLOC_FAILED")
_SIZE = r"([0-9.]+) *([KMGTPE]i?B|bytes)"
_ASKED = re.compile(f"tried to allocate {_SIZE}", re.IGNORECASE)
_CAPACITY = re.compile(f"total capacity of {_SIZE}", re.IGNORECASE)
_UNITS = {"B": 1, **{unit: 1 << 10 * i for i, unit in enumerate("KMGTPE", 1)}}
# after these a process can use its GPU no more
_LOST = (
    *("device-side assert", "illegal memory access", "illegal address", "misaligned address"),
    *("unspecified launch failure", "illegal instruction", "hardware stack error"),
)


class Starved(RuntimeError):
    """Memory was exhausted, of the device or of the machine: that says nothing of a candidate."""


def exhausted(kind: str, message: str) -> bool:
    """Whether an error of a class of this name says that memory is exhausted. Who asks for more
    than there ever is, as for as many rows as an integer says, is refused: that is no shortage."""
    if _beyond(message):
        return False
    if kind in ("OutOfMemoryError", "MemoryError"):
        return True
    return kind.endswith("Error") and any(w.lower() in message.lower() for w in _NO_MEMORY)


def _beyond(message: str) -> bool:
    """Whether more is asked for than the machine, or the device that the message names, has."""
    asked = _ASKED.search(message)
    if asked is None:
        return False
    capacity = _CAPACITY.search(message)
    return _bytes(asked) > (installed() if capacity is None else _bytes(capacity))


def _bytes(found: re.Match[str]) -> float:
    return float(found[1]) * _UNITS[found[2][:1].upper()]


def device_lost(message: str) -> bool:
    """Whether an error says that the process can use its GPU no more."""
    return "CUDA" in message and any(words in message for words in _LOST)


def resident(pid: int) -> int:
    """Bytes of a process that lie in memory."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def written(pid: int) -> int:
    """Bytes that a process has written to disks."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", "rb") as file:
        for line in file:
            if line.startswith(b"write_bytes:"):
                return int(line.split()[1])
    return 0


def available() -> int:
    """Bytes of the machine's memory that are free, or can be made so."""
    return _meminfo("MemAvailable")


def installed() -> int:
    """Bytes of the machine's memory."""
    return _meminfo("MemTotal")


def _meminfo(name: str) -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) << 10
    return 8 << 30


def open_files(pid: int) -> int:
    """How many descriptors a process has; 0 where there is no such process."""
    return _entries(f"/proc/{pid}/fd")


def running_threads(pid: int) -> int:
    """How many threads a process has; 0 where there is no such process."""
    return _entries(f"/proc/{pid}/task")


def worked(pid: int) -> float:
    """Seconds for which a process, and those it waited for, were on a processor; 0 where there is
    no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            after_name = file.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(int(n) for n in after_name[11:15])  # user and system, its own and its children's
    return ticks / os.sysconf("SC_CLK_TCK")


def _entries(folder: str) -> int:
    try:
        return len(os.listdir(folder))
    except OSError:
        return 0


def killed() -> int:
    """How many processes the system has ended because memory was exhausted."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as file:
        for line in file:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


_SHARE = 0.9  # of what is free, that a judgement may take
_LEAST = 4 << 30  # bytes that it may take in any case: what is free now may be more soon
_bounding = threading.Lock()
_bounded = 0  # blocks that run
_before = (0, 0)  # the limit that the first of them found


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Inside the block this process is refused memory that the machine does not have.

    Without that the kernel gives it, and ends the process where it is used. Blocks may run side by
    side: the first sets the limit, and the last puts back what was.
    """
    global _bounded, _before
    with _bounding:
        if _bounded == 0:
            _before = resource.getrlimit(resource.RLIMIT_DATA)
            most = _data() + max(int(_SHARE * available()), _LEAST)
            others = [n for n in _before if n != resource.RLIM_INFINITY]
            resource.setrlimit(resource.RLIMIT_DATA, (min([most, *others]), _before[1]))
        _bounded += 1
    try:
        yield
    finally:
        with _bounding:
            _bounded -= 1
            if _bounded == 0:
                resource.setrlimit(resource.RLIMIT_DATA, _before)


@contextlib.contextmanager
def at_most(size: int) -> Iterator[None]:
    """Inside the block this process is refused more than so many bytes beside those that it has."""
    with _bounding:
        before = resource.getrlimit(resource.RLIMIT_DATA)
        others = [n for n in before if n != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([_data() + size, *others]), before[1]))
    try:
        yield
    finally:
        with _bounding:
            resource.setrlimit(resource.RLIMIT_DATA, before)


def _data() -> int:
    """Bytes that count towards this process's limit of data."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0
