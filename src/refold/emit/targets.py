"""The back ends by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refold.emit.cpu import CpuTarget
from refold.emit.cuda import CudaTarget
from refold.emit.target import Target

# name -> the back end for an accuracy of float32 products, "ieee" or "tf32"
TARGETS: Mapping[str, Callable[[str], Target]] = {
    "cpu": lambda float32: CpuTarget(),
    "cuda:sm_90": lambda float32: CudaTarget("sm_90", float32),
    "cuda:sm_80": lambda float32: CudaTarget("sm_80", float32),
}
