"""The back ends by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refold.emit.cpu import CpuTarget
from refold.emit.target import Target

TARGETS: Mapping[str, Callable[[], Target]] = {"cpu": CpuTarget}
