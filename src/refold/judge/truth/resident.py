"""Copies of large inputs that stay on the device: each run of the reference takes them from there.

A draw of inputs lies on the CPU. A run copies it, and compares the copy with it afterwards; of half
a gigabyte either takes a tenth of a second and more on the way to a GPU, and a dozen runs of one
draw follow one another.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

LEAST = 16 << 20  # bytes; what is smaller is copied each time
_SHARE = 32  # of the device's memory all copies take one part at most
_ELSEWHERE = 1 << 30  # bytes of all copies where nothing tells the memory


class Residents:
    """Copies by the identity of a tensor, as long as it lives and nobody writes to it."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, int, torch.Tensor]] = {}

    def of(self, t: torch.Tensor, device: torch.device) -> torch.Tensor:
        """The tensor itself where it is small, or lies there; else a copy on the device, which is
        not to be written to."""
        size = t.numel() * t.element_size()
        if t.device.type == device.type or device.type == "cpu" or size < LEAST or t.is_inference():
            return t
        if any(st == 0 and s > 1 for s, st in zip(t.shape, t.stride(), strict=True)):
            return t
        key = id(t)
        known = self._held.pop(key, None)
        if known is None or known[0]() is not t or known[1] != t._version:
            known = None  # before the next is made
            there = t.detach().to(device, memory_format=torch.preserve_format)
            if there.stride() != t.stride():
                return t
            known = weakref.ref(t, lambda _: self._held.pop(key, None)), t._version, there
        self._held[key] = known  # the last one used goes last
        while len(self._held) > 1 and self.bytes() > _most(device):
            self._held.pop(next(iter(self._held)))
        return known[2]

    def bytes(self) -> int:
        """What all copies hold."""
        return sum(t.numel() * t.element_size() for _, _, t in self._held.values())

    def clear(self) -> None:
        """Memory is exhausted."""
        self._held.clear()


def _most(device: torch.device) -> int:
    if device.type != "cuda":
        return _ELSEWHERE
    return int(torch.cuda.get_device_properties(device).total_memory) // _SHARE


RESIDENTS = Residents()
