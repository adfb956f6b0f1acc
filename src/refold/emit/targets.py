"""The back end of each device."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from refold.devices import Device
from refold.emit.cpu import CpuTarget
from refold.emit.cuda import CudaTarget
from refold.emit.target import Target

_BY_TOOLCHAIN: Mapping[str, Callable[[Device, str], Target]] = {
    "cpp": lambda device, float32: CpuTarget(),
    "cuda": CudaTarget,
}


def target_of(device: Device, float32: str) -> Target:
    """What makes kernels for a device. float32: the accuracy of products, "ieee" or "tf32"."""
    return _BY_TOOLCHAIN[device.toolchain](device, float32)
