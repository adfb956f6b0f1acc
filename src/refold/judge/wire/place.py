"""Where the parent keeps results. It is decided once for each size: equal outputs lie together."""

from __future__ import annotations

import torch

_CPU = torch.device("cpu")
_ROOM = 8  # times a result's size that must be free on the device when its place is decided


class Place:
    """Of one judgement. On the CPU there is nothing to decide."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._decided: dict[int, torch.device] = {}

    def of(self, size: int) -> torch.device:
        """The device for a result of so many bytes. Free memory changes while others use the
        device; the answer for a size does not."""
        if self.device.type != "cuda":
            return _CPU
        if size not in self._decided:
            free = torch.cuda.mem_get_info(self.device)[0]
            self._decided[size] = self.device if free > _ROOM * size else _CPU
        return self._decided[size]

    def like(self, tensor: torch.Tensor) -> torch.device:
        """The device for a copy of a tensor."""
        return self.of(tensor.numel() * tensor.element_size())

    def retreat(self) -> bool:
        """Keep everything on the CPU from now on, after the device's memory was exhausted; False
        if that is so already."""
        moved = self.device.type == "cuda"
        self.device = _CPU
        if moved:
            torch.cuda.empty_cache()
        return moved
