"""Who computes a convolution: the kernels that there are, which of them a rule takes, and how
accurate they have to be.

PyTorch's flag for convolutions, which is not the one for products, allows TF32. Whether its library
then uses TF32 hangs on the sizes: conv_class.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from refold import flat, patches
from refold.flat import FLAT
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
    tiles={"broad": (128, 128), "slim": (64, 128), "joined": (64, 128), "paired": (64, 80)},
    splits={"broad": (1,), "slim": (1,), "joined": (1,), "paired": (1,)},
)
PATCHES = Kernels(
    "patches mma_sync",
    frozenset({"mma_sync", "cp_async"}),
    "convolution_patches.cuh",
    "rf::Patches<rf::{mode}, rf::{tile}, {channels}>",
    tiles={"features64": (64, 128), "features32": (32, 256), "features16": (16, 256)},
    splits={"features64": (1,), "features32": (1,), "features16": (1,)},
    slow=2.0,
    packs=True,
)
DIRECT = Kernels(
    "direct",
    frozenset(),
    "convolution_direct.cuh",
    "rf::PlainSums",
    tiles={"columns": (1, 256)},
    splits={"columns": (1,)},
)
KERNELS = (IMPLICIT, STRIPS, PATCHES, DIRECT, FLAT)
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
_SHARED, _MARGIN = 232448 - 1024, 3
# elements that memory takes together; one tile of so many may be computed for their sake
_SECTOR, _TILES_MORE = 8, 6
# features and products of a group below which most of a tile of the tensor cores is empty
LEAST_FEATURES, LEAST_DEPTH = 16, 16
# a product by patches by the tile's features: few features meet as many elements of a patch (files
# 2 and 91 of KernelBench's level 2 on an H100: 1854, 4068 and 7223 us; 1962, 3755 and 6631)
_OF_PATCHES = {64: 1.0, 32: 1.9, 16: 3.4}
# a product by plain arithmetic, in those of tensor cores
_PLAIN = 10.0
# of a step along the height, each a copy of the kernel's text
_MOST_PHASES = 4
# the most of both that plain arithmetic computes
_MOST_DIRECT, _MOST_DIRECT_DEPTH = 8, 1024


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
        places = _MARGIN + 128 + self.axes[-1].reach
        deep = prod(self.kernel[:-2])  # taps, which are further channels of a row
        row_channels, wide = self.channels // self.groups * deep, self.kernel[-1]
        octets, taps = -(-row_channels // 16) * 2, prod(self.kernel[-2:])
        if row_channels <= 8 and wide > 1 and not self.transposed:  # two taps a step, and zeros
            octets, taps = 1, prod(self.kernel[-2:-1]) * (wide + wide % 2) + 1
            places += wide % 2 * self.dilations[-1]
        weights = pieces * taps * octets * features * 16
        slot = pieces * octets * places * 16 + -(-octets // 4) * (places + 1) * 4 + 16
        staged = 8 * 8 * (32 + 8) * 4  # the least of a row of each warp's eight features
        fit = max(0, _SHARED - weights - staged) // slot
        return min(fit, self.span + 8)

    @property
    def has_split_sectors(self) -> bool:
        """Whether rows of strips, of one phase, are wide and begin anywhere, so that tiles that
        overlap by a sector of memory are few more: by such files 67 and 63 of KernelBench's level 1
        took 1319 us of an H100 for 1779, and 4846 for 5702; rows of 254 places 2450 for 1506."""
        wide = self.made[-1]
        tiles, overlapping = -(-wide // 128), -(-(wide - _SECTOR) // (128 - _SECTOR))
        whole = wide % _SECTOR == 0 and prod(self.made) % _SECTOR == 0
        few = (overlapping - tiles) * _TILES_MORE <= tiles
        return self.axes[-1].phases == 1 and tiles > 1 and not whole and few

    @property
    def joined(self) -> int:
        """Images whose rows lie next to each other in a tile of strips, where rows are short."""
        wide, lead = self.made[-1], (0, 3, 2, 3)[self.made[-1] % 4]  # places by which it is shifted
        if self.transposed or prod(self.made) % 4:
            return 1
        pitches = (p for p in (32, 64) if wide + max(lead, self.axes[-1].reach) <= p)
        return 128 // next(pitches, 128)

    @property
    def span(self) -> int:
        """Rows of an image that a row of a result meets, of all phases."""
        return self.axes[-2].reach + 1 if len(self.axes) > 1 else 1

    @property
    def transposed(self) -> bool:
        return self.output_padding is not None

    @property
    def axes(self) -> tuple[patches.Axis, ...]:
        facts = (self.made, self.kernel, self.strides, self.paddings, self.dilations)
        return tuple(patches.Axis(*axis, self.transposed) for axis in zip(*facts, strict=True))

    def at_once(self, schedule: Schedule, kind: str = "tf32") -> int:
        """Channels in shared memory at a time, of a patch or a window; 0 where none fit."""
        if schedule.kernels is FLAT:
            return flat.channels_at_once(self.channels // self.groups, schedule, kind)
        _, places = schedule.sizes
        return patches.channels_at_once(self.channels // self.groups, self.axes, places)

    @property
    def products(self) -> int:
        """Of all results; of a transposed one each element of an image meets the whole kernel."""
        places = self.images * prod(self.sizes) if self.transposed else self.pixels
        return places * prod(self.kernel) * self.channels * self.features // self.groups

    @property
    def pixels(self) -> int:
        """Places of all results."""
        return self.images * prod(self.made)


@dataclass(frozen=True)
class Algorithm:
    """One of our kernels, and the accuracy of its products: "ieee" or "tf32"."""

    schedule: Schedule
    kind: str


# which of our kernels computes a convolution; None: PyTorch's call does
Choice = Callable[[Convolution], Algorithm | None]


class Noted:
    """A choice of kernels for convolutions that notes what it was asked and answered."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.answers: dict[Convolution, Algorithm | None] = {}

    def __call__(self, convolution: Convolution) -> Algorithm | None:
        if convolution not in self.answers:
            self.answers[convolution] = self.choice(convolution)
        return self.answers[convolution]

    def alike(self, other: Choice) -> bool:
        """Would another choice have answered the same?"""
        return all(other(c) == a for c, a in self.answers.items())


ON_CPU = Algorithm(schedules(PANELS)[0], "ieee")


def every_schedule(features: frozenset[str] = IMPLICIT.requires) -> list[Schedule]:
    """All schedules of convolutions on a device that has these features."""
    return [s for kernels in KERNELS if kernels.requires <= features for s in schedules(kernels)]


def candidates(c: Convolution, kind: str, features: frozenset[str]) -> list[Algorithm]:
    """Those that compute a convolution in a class of accuracy."""
    taken = (s for s in every_schedule(features) if takes(s, c, kind))
    return [Algorithm(s, "ieee" if s.kernels is DIRECT else kind) for s in taken]


def takes(schedule: Schedule, c: Convolution, kind: str) -> bool:
    """Whether the kernels of a schedule compute a convolution."""
    if schedule.kernels is PANELS:
        return True
    each = c.features // c.groups
    if schedule.kernels is DIRECT:
        return not c.transposed and each <= _MOST_DIRECT and c.depth <= _MOST_DIRECT_DEPTH
    by_patches = schedule.kernels is PATCHES
    part = 4 if by_patches else 1  # whose tiles are smaller
    if each * part < LEAST_FEATURES or c.depth * part < LEAST_DEPTH:
        return False
    if by_patches:
        return c.at_once(schedule) > 0
    if schedule.kernels is FLAT:
        return flat.takes(schedule, c, kind)
    if schedule.kernels is STRIPS:
        return _fit_strips(schedule, c, kind)
    return not c.transposed


def _fit_strips(strips: Schedule, c: Convolution, kind: str) -> bool:
    """Strips of rows are by steps of 1, where kernels and rows fit shared memory. Of transposed
    ones they are along one or two axes, of one group, by steps of 2 at most along the width. Short
    rows of several images are joined; the phases of steps of 2 are paired."""
    if (c.transposed and len(c.sizes) > 2) or (strips.tile == "joined" and c.joined == 1):
        return False
    if strips.tile == "paired" and not (c.transposed and c.strides[-1] == 2):
        return False
    if c.transposed and (c.groups > 1 or c.strides[-1] > 2 or max(c.strides) > _MOST_PHASES):
        return False
    if not c.transposed and max(c.strides) > 1:
        return False
    features, _ = strips.sizes
    return c.slots(features, kind) > c.span


def tile_products(schedule: Schedule, c: Convolution) -> float:
    """Products of whole tiles, which are computed where a tile is not full, too; with processors
    that idle in the last wave."""
    high, wide = schedule.sizes
    if schedule.kernels is DIRECT:
        return float(c.features * c.pixels * c.depth) * _PLAIN
    if schedule.kernels is PATCHES:
        each, places = c.channels // c.groups, prod(a.places for a in c.axes) * c.images
        tiles = c.groups * -(-(c.features // c.groups) // high) * -(-places // wide)
        waves = -(-tiles // PROCESSORS)
        depth = patches.depth(each, c.at_once(schedule), c.axes)
        return waves * PROCESSORS * high * wide * depth * _OF_PATCHES[high]
    if schedule.kernels is FLAT:
        return flat.products(schedule, c)
    columns = -(-c.pixels // wide)
    if schedule.kernels is STRIPS:  # a tile has no two rows of an image; a place has all phases
        joined = c.joined if schedule.tile == "joined" else 1
        rows = -(-c.images // joined) * prod(a.places for a in c.axes[:-1])
        columns = rows * -(-c.axes[-1].places // wide)
    tiles = c.groups * -(-(c.features // c.groups) // high) * columns
    waves = -(-tiles // PROCESSORS)
    depth = -(-c.depth // 64) * 64
    # a tile of 64 features reads windows and scales for half the products
    return waves * PROCESSORS * high * wide * depth * (1.0 if high == 128 else 1.3)
