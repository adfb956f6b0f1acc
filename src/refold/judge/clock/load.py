"""How busy the machine is, and one clock at a time on a device."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

_PRESSURE = Path("/proc/pressure/cpu")
_BUSY = 20.0  # percent of the last ten seconds in which some process waited for a processor


def pressure() -> float:
    """Percent of time in which some process waited for a processor; 0 where nothing tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        first = _PRESSURE.read_text(encoding="ascii").splitlines()[0]
        return float(first.split("avg10=")[1].split()[0])
    return 0.0


def loaded(before: float, after: float) -> str:
    """Why no time can be believed, by the pressure before and after; empty if it can."""
    most = max(before, after)
    if most <= _BUSY:
        return ""
    return f"the machine is busy: processes waited for a processor {most:.0f}% of the time"


@contextlib.contextmanager
def alone(device: torch.device) -> Iterator[None]:
    """No other judge times anything on the device meanwhile; those that only prove go on."""
    if device.type != "cuda":
        yield
        return
    name = str(torch.cuda.get_device_properties(device).uuid)
    path = Path(tempfile.gettempdir()) / f"refold-clock-{name}.lock"
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
