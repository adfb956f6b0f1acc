"""Normal noise of one seed, drawn where it is needed."""

from __future__ import annotations

import torch


class Noise:
    """Draws for one tensor after the other. A GPU draws for its own: a hundred times faster, and
    other numbers than the CPU's of the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def like(self, t: torch.Tensor) -> torch.Tensor:
        """Real noise of a tensor's shape on its device: float64 for float64, else float32."""
        generator = self._generators.get(t.device)
        if generator is None:
            generator = torch.Generator(t.device).manual_seed(self._seed)
            self._generators[t.device] = generator
        wide = t.dtype in (torch.float64, torch.complex128)
        dtype = torch.float64 if wide else torch.float32
        return torch.randn(t.shape, generator=generator, dtype=dtype, device=t.device)
