"""How a GPU computes a convolution that is a kernel of our own: families/convolution chooses."""

from __future__ import annotations

from dataclasses import dataclass

from refold.plan.product import Pack
from refold.schedule import Schedule

CONVOLUTION = "pack_convolution_"  # the form of packed kernels, followed by the kind


@dataclass(frozen=True)
class ConvolutionKernel:
    """kind: the accuracy of its products, "ieee" or "tf32". schedule: how it is cut. packs: what it
    reads packed: the weight. What products have besides, it has not."""

    kind: str
    schedule: Schedule
    packs: tuple[Pack, ...]
    itself: None = None
    quantized_from: None = None
    on_tensor_cores: bool = True

    def __str__(self) -> str:
        high, wide = self.schedule.sizes
        name = self.schedule.kernels.name
        return f"{self.kind}: {name} tiles of {high} features x {wide} places"
