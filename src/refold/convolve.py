"""Who computes a convolution on a GPU: the kernels that there are, which of them a rule takes, and
how accurate they have to be.

PyTorch's flag for convolutions, which is not the one for products, allows TF32. Whether its library
then uses TF32 hangs on the convolution: of few products an element it does not, where that was
measured (72 of 8 channels: fp32; 576 of 64: TF32). What is written without measuring is accurate to
fp32 in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from refold.schedule import PROCESSORS, Kernels, Schedule, schedules

IMPLICIT = Kernels(
    "implicit mma_sync",
    frozenset({"mma_sync", "cp_async"}),
    "convolution.cuh",
    "rf::GenericConvolution<rf::{mode}, rf::{tile}>",
    tiles={"broad": (128, 128), "slim": (64, 128)},  # features, places
    splits={"broad": (1,), "slim": (1,)},
    slow=2.0,
)
# of a sum's products, from how many on PyTorch's library is taken to use TF32 where it is allowed
LEAST_TF32 = 512
# features and products of a group below which most of a tile of the tensor cores is empty
LEAST_FEATURES, LEAST_DEPTH = 16, 16


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution. channels, features: of all groups. sizes, made: of an image and
    of a result along each axis, as are kernel, strides, paddings and dilations."""

    images: int
    channels: int
    features: int
    groups: int
    sizes: tuple[int, ...]
    made: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    paddings: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Products of each sum."""
        return self.channels // self.groups * prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Places of all results."""
        return self.images * prod(self.made)


@dataclass(frozen=True)
class Way:
    """One of our kernels, and the accuracy of its products: "ieee" or "tf32"."""

    schedule: Schedule
    kind: str


# which of our kernels computes a convolution; None: PyTorch's call does
Choice = Callable[[Convolution], Way | None]


def by_rule(allowed: str) -> Choice:
    """Our kernels, by the least of what they compute. allowed: the accuracy that PyTorch's flag
    allows for convolutions, "ieee" or "tf32"."""

    def chosen(convolution: Convolution) -> Way | None:
        kind = kind_of(convolution, allowed)
        way = min(ways(), key=lambda s: tile_products(s, convolution))
        return Way(way, kind)

    return chosen


def ways() -> list[Schedule]:
    """All ways to cut a convolution."""
    return schedules(IMPLICIT)


def kind_of(convolution: Convolution, allowed: str) -> str:
    """The accuracy of what PyTorch's library is taken to compute."""
    return allowed if convolution.depth >= LEAST_TF32 else "ieee"


def tile_products(schedule: Schedule, c: Convolution) -> float:
    """Products of whole tiles, which are computed where a tile is not full, too; with processors
    that idle in the last wave."""
    high, wide = schedule.sizes
    tiles = c.groups * -(-(c.features // c.groups) // high) * -(-c.pixels // wide)
    waves = -(-tiles // PROCESSORS)
    depth = -(-c.depth // 64) * 64
    # a tile of 64 features reads windows and scales for half the products
    return waves * PROCESSORS * high * wide * depth * (1.0 if high == 128 else 1.3)
