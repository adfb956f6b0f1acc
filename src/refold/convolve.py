"""Who computes a convolution: the kernels that there are, which of them a rule takes, and how
accurate they have to be.

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
STRIPS = Kernels(
    "strips wgmma",
    frozenset({"wgmma", "setmaxnreg", "dependent_launch"}),
    "convolution_strips.cuh",
    "rf::Strips<rf::{mode}, rf::{tile}>",
    tiles={"broad": (128, 128), "slim": (64, 128)},
    splits={"broad": (1,), "slim": (1,)},
)
KERNELS = (IMPLICIT, STRIPS)
# those for a CPU, whose sizes decide how they are cut
PANELS = Kernels(
    "panels of vectors",
    frozenset(),
    "convolution.h",
    "",
    tiles={"strip": (512, 128)},
    splits={"strip": (1,)},
)
# of cuda/strip_rows.cuh: bytes that a block of Hopper can have, but for alignment and small tables;
# places before a tile
_SHARED, _MARGIN = 232448 - 512, 3
# of a sum's products, from how many on PyTorch's library is taken to use TF32 where it is allowed
LEAST_TF32 = 512
# features and products of a group below which most of a tile of the tensor cores is empty
LEAST_FEATURES, LEAST_DEPTH = 16, 16


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution. channels, features: of all groups. sizes, made: of an image and
    of a result along each axis, as are kernel, strides, paddings and dilations; output_padding: of
    a transposed one, how much longer its result is."""

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
    output_padding: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """Products of each sum."""
        return self.channels // self.groups * prod(self.kernel)

    def slots(self, features: int, kind: str) -> int:
        """How many rows of images lie in shared memory beside the kernels of so many features, and
        fewer than the kernel reaches over if that is none: cuda/convolution_strips.cuh."""
        pieces = 2 if kind == "ieee" else 1
        high, wide = (1, 1, *self.kernel)[-2:]
        down, right = (1, 1, *self.dilations)[-2:]
        places = _MARGIN + 128 + (wide - 1) * right
        octets = -(-self.channels // self.groups // 16) * 2
        weights = pieces * prod(self.kernel) * octets * features * 16
        slot = pieces * octets * places * 16 + -(-octets // 4) * (places + 1) * 4 + 16
        fit = max(0, _SHARED - weights) // slot
        return min(fit, (high - 1) * down + 9)

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
ON_CPU = Way(schedules(PANELS)[0], "ieee")


def by_rule_on_cpu(c: Convolution) -> Way | None:
    """Our kernels for a CPU, where they were measured to be ahead and to lose nowhere: one or two
    features a group, few products a sum, along a line, and transposed by steps (the table in
    docs/convolution.md). Where rows are short, more is copied, or lies in empty lanes, than is
    gained.
    """
    each, wide = c.features // c.groups, c.made[-1]
    if c.output_padding is not None:
        ahead = max(c.strides) > 1 and each >= _PANEL and c.depth >= _PANEL * prod(c.strides)
    elif each <= _FEW:
        ahead = wide >= _LANES and c.depth <= 2 * _FEW_PRODUCTS
    else:
        plain = each >= _PANEL and wide >= 2 * _LANES - 4 and max(c.strides) == 1
        ahead = plain and (len(c.made) == 1 or c.depth <= _FEW_PRODUCTS)
    return ON_CPU if ahead else None


# features of a group that are few, and that fill a panel; places of a vector; products of a sum
_FEW, _PANEL, _LANES, _FEW_PRODUCTS = 2, 14, 16, 72


def by_rule(allowed: str, features: frozenset[str] = IMPLICIT.requires) -> Choice:
    """Our kernels, by the least of what they compute. allowed: the accuracy that PyTorch's flag
    allows for convolutions, "ieee" or "tf32". features: of the device."""

    def chosen(convolution: Convolution) -> Way | None:
        found = candidates(convolution, kind_of(convolution, allowed), features)
        return min(found, key=lambda w: tile_products(w.schedule, convolution))

    return chosen


def far_ahead(allowed: str, features: frozenset[str]) -> Choice:
    """Strips of rows, for convolutions like those of which they were measured to take less than
    half of the library's time (docs/convolution.md); the library for the rest."""

    def full(size: int, tile: int) -> bool:
        return size >= 0.75 * -(-size // tile) * tile

    def chosen(c: Convolution) -> Way | None:
        if len(c.kernel) < 2 or prod(c.kernel) < 4 or c.channels // c.groups < 8:
            return None
        if not full(c.made[-1], 128) or c.images * prod(c.made[:-1]) < 4 * PROCESSORS:
            return None
        found = [w for w in candidates(c, kind_of(c, allowed), features) if _is_strips(w)]
        found = [w for w in found if full(c.features // c.groups, w.schedule.sizes[0])]
        return min(found, key=lambda w: tile_products(w.schedule, c), default=None)

    return chosen


def _is_strips(way: Way) -> bool:
    return way.schedule.kernels is STRIPS


def ways(features: frozenset[str] = IMPLICIT.requires) -> list[Schedule]:
    """All ways to cut a convolution on a device that has these features."""
    strips = schedules(STRIPS) if STRIPS.requires <= features else []
    return schedules(IMPLICIT) + strips


def candidates(c: Convolution, kind: str, features: frozenset[str]) -> list[Way]:
    """Those that compute a convolution in a class of accuracy."""
    return [Way(s, kind) for s in ways(features) if s.kernels is IMPLICIT or takes(s, c, kind)]


def takes(strips: Schedule, c: Convolution, kind: str) -> bool:
    """Whether strips of rows compute a convolution: along one or two axes, by steps of 1, where
    kernels and rows fit shared memory."""
    if len(c.sizes) > 2 or any(s != 1 for s in c.strides):
        return False
    features, _ = strips.sizes
    span = ((1, *c.kernel)[-2] - 1) * (1, *c.dilations)[-2] + 1
    return c.slots(features, kind) >= span + (1 if features == 128 else 2)


def kind_of(convolution: Convolution, allowed: str) -> str:
    """The accuracy of what PyTorch's library is taken to compute."""
    return allowed if convolution.depth >= LEAST_TF32 else "ieee"


def tile_products(schedule: Schedule, c: Convolution) -> float:
    """Products of whole tiles, which are computed where a tile is not full, too; with processors
    that idle in the last wave."""
    high, wide = schedule.sizes
    columns = -(-c.pixels // wide)
    if schedule.kernels is STRIPS:  # rows are not joined
        columns = c.pixels // c.made[-1] * -(-c.made[-1] // wide)
    tiles = c.groups * -(-(c.features // c.groups) // high) * columns
    waves = -(-tiles // PROCESSORS)
    depth = -(-c.depth // 64) * 64
    # a tile of 64 features reads windows and scales for half the products
    return waves * PROCESSORS * high * wide * depth * (1.0 if high == 128 else 1.3)
