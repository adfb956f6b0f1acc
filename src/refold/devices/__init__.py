"""Devices: what they are, which there are, and which one is at hand."""

from refold.devices.detect import device_at_hand, is_at_hand
from refold.devices.device import FEATURES, Device
from refold.devices.model import DeviceModel
from refold.devices.table import ANY, DEVICES

__all__ = [
    "ANY",
    "DEVICES",
    "FEATURES",
    "Device",
    "DeviceModel",
    "device_at_hand",
    "is_at_hand",
]
