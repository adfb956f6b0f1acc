"""Which device this machine has."""

from __future__ import annotations

import torch

from refold.devices.device import Device
from refold.devices.table import DEVICES


def capability_at_hand() -> tuple[int, int] | None:
    """The compute capability of the current GPU; None where PyTorch finds none of NVIDIA's."""
    if torch.version.hip or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability()


def device_at_hand() -> Device:
    """The device whose kernels this machine runs best, among those whose kernels were ever run; the
    CPU where none of a GPU runs."""
    capability = capability_at_hand()
    able = [d for d in DEVICES.values() if d.run_on and d.runs_on(capability)]
    return max(able, key=lambda d: d.capability or (0, 0))


def is_at_hand(device: Device) -> bool:
    """Whether this machine can run what is made for a device."""
    return device.runs_on(capability_at_hand())
