"""Who computes a convolution: the kernels that there are, which of them a rule takes, and how
accurate they have to be.

PyTorch's flag for convolutions, which is not the one for products, allows TF32. Whether its library
then uses TF32 hangs on the sizes: conv_class.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from refold import patches
from refold.conv_class import kind_of, lacks_tensor_cores
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
KERNELS = (IMPLICIT, STRIPS, PATCHES, DIRECT)
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
# features and products of a group below which most of a tile of the tensor cores is empty
LEAST_FEATURES, LEAST_DEPTH = 16, 16
# a product by patches by the tile's features: few features meet as many elements of a patch (files
# 2 and 91 of KernelBench's level 2 on an H100: 1854, 4068 and 7223 us; 1962, 3755 and 6631)
_OF_PATCHES = {64: 1.0, 32: 1.9, 16: 3.4}
# a product by plain arithmetic, in those of tensor cores
_PLAIN = 10.0
_SLIM = 64  # features of the narrower tile
# of a step along the height, each a copy of the kernel's text
_MOST_PHASES = 4
# products of an element of a transposed one up to which patches were far ahead, and of fp32 class
# (files 34 and 38, 15 and 74 of level 2; of 108 products fp32 class was level: file 20)
_TRANSPOSED, _FEW_TRANSPOSED = 256, 64
# channels up to which volumes were, whose vectors the library leaves empty (files 6, 24, 27, 48)
_CHANNELS_OF_VOLUMES = 4
# channels and products up to which images by steps were, in fp32: file 65 of level 2 took 1257 us
# for 2021, resnet18 2001 for 2219 by its first one, of 3 channels by 7 x 7
_CHANNELS_BY_STEPS, _DEPTH_BY_STEPS = 8, 288
# how much of a strip's tile is full at least along a row, of a transposed one's, and of features,
# where ours were measured to be ahead: files 1, 91 and 21 of KernelBench's level 2
_LEAST_OF_ROW, _LEAST_TRANSPOSED, _LEAST_FEATURES = 0.75, 0.5, 0.5
# products of an element up to which plain arithmetic was far ahead where each channel is by itself
_BY_CHANNEL = 9
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

    def at_once(self, schedule: Schedule) -> int:
        """Channels of a patch in shared memory at a time; 0 where none fit."""
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


def by_rule_on_cpu(c: Convolution) -> Algorithm | None:
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


_IN_ORDER = ((IMPLICIT, STRIPS), (PATCHES,), (DIRECT,))


def by_rule(allowed: str, features: frozenset[str] = IMPLICIT.requires) -> Choice:
    """Our kernels, by the least of what they compute; patches, which were not timed yet, for what
    the others do not take, plain arithmetic last.

    allowed: the accuracy that PyTorch's flag allows for convolutions, "ieee" or "tf32". features:
    of the device.
    """

    def chosen(convolution: Convolution) -> Algorithm | None:
        found = candidates(convolution, kind_of(convolution, allowed), features)
        best = [[w for w in found if w.schedule.kernels in k] for k in _IN_ORDER]
        taken = next(filter(None, best), [])
        return min(taken, key=lambda w: tile_products(w.schedule, convolution), default=None)

    return chosen


def far_ahead(allowed: str, features: frozenset[str]) -> Choice:
    """Strips of rows, for convolutions like those of which they were measured to take less than
    the library's call and a kernel for what follows, transposed ones too; patches for other
    transposed ones, for volumes of few channels and for such images by steps, like those of which
    they took less than three quarters of the call's time; plain arithmetic where each channel is by
    itself; the library for the rest (docs/convolution.md)."""

    def full(size: int, tile: int, least: float = 0.75) -> bool:
        return size >= least * -(-size // tile) * tile

    def by_patches(c: Convolution) -> Algorithm | None:
        kind, each = kind_of(c, allowed), c.features // c.groups
        products = c.depth / prod(c.strides)  # of an element of the result
        if c.transposed:
            # without tensor cores the library took six times as long of 500 products (file 78)
            most = _TRANSPOSED if kind == "tf32" else _FEW_TRANSPOSED
            few = lacks_tensor_cores(c) or products <= most
            few = few and len(c.sizes) > 1 and min(c.strides) > 1
        elif max(c.strides) == 1:  # file 8 of level 2, of TF32: 1067 us, the library 1757
            some = kind == "tf32" and each <= LEAST_FEATURES and c.channels > 3
            kind = kind if some else "ieee"
            few = (c.channels <= _CHANNELS_OF_VOLUMES or some) and len(c.sizes) > 2
        else:
            few = c.channels <= _CHANNELS_BY_STEPS and c.depth <= _DEPTH_BY_STEPS
            few = few and len(c.sizes) == 2 and min(c.strides) > 1
        if c.groups > 1 or not few or each > 64:
            return None
        if not STRIPS.requires <= features:  # it was timed on Hopper alone
            return None
        found = [w for w in candidates(c, kind, features) if w.schedule.kernels is PATCHES]
        found = [w for w in found if full(each, w.schedule.sizes[0])]
        if c.images * prod(a.places for a in c.axes) < 4 * PROCESSORS * 128:
            return None
        return min(found, key=lambda w: tile_products(w.schedule, c), default=None)

    def by_channel(c: Convolution) -> Algorithm | None:
        few = c.features * c.pixels < 4 * PROCESSORS * 2048
        if few or c.depth > _BY_CHANNEL or not STRIPS.requires <= features:
            return None
        found = candidates(c, "ieee", features)
        return next((w for w in found if w.schedule.kernels is DIRECT), None)

    def by_strips(c: Convolution) -> Algorithm | None:
        if len(c.kernel) < 2 or prod(c.kernel) < 4 or c.channels // c.groups < 8:
            return None
        kind = kind_of(c, allowed)
        if c.transposed and kind != "tf32":
            return None  # was not timed
        whole = _LEAST_TRANSPOSED if c.transposed else _LEAST_OF_ROW

        def fills(w: Algorithm) -> bool:
            """Are there enough rows, and do rows and features fill most of its tiles?"""
            joined = c.joined if w.schedule.tile == "joined" else 1
            # timed where four fifths of the row were full (files 93 and 5)
            least = _LEAST_OF_ROW if w.schedule.tile == "paired" else whole
            rows = c.images // joined * prod(a.places for a in c.axes[:-1])
            along = full(c.axes[-1].places * joined, w.schedule.sizes[1], least)
            return (
                along
                and rows >= 4 * PROCESSORS
                and full(c.features // c.groups, w.schedule.sizes[0], _LEAST_FEATURES)
            )

        found = [w for w in candidates(c, kind, features) if _is_strips(w) and fills(w)]
        # of transposed ones broad tiles were slower (file 36 of level 2 on an H100: 384 us, 284)
        found = [w for w in found if not c.transposed or w.schedule.sizes[0] == _SLIM]
        return min(found, key=lambda w: tile_products(w.schedule, c), default=None)

    def chosen(c: Convolution) -> Algorithm | None:
        if c.transposed:
            return by_strips(c) or by_patches(c)
        if c.groups == c.channels == c.features:
            return by_channel(c)
        return by_strips(c) or by_patches(c)

    return chosen


def _is_strips(algorithm: Algorithm) -> bool:
    return algorithm.schedule.kernels is STRIPS


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
