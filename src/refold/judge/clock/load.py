"""How busy the machine is."""

from __future__ import annotations

import contextlib
from pathlib import Path

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
