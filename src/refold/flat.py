"""The kernel that reads images as one long row of places (families/convolution/cuda/
convolution_flat.cuh): what it takes, and how much it computes and moves."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Protocol, TypeVar

from refold.patches import Axis
from refold.schedule import PROCESSORS, Kernels, Schedule

FLAT = Kernels(
    "flat wgmma",
    frozenset({"tma", "wgmma", "setmaxnreg", "dependent_launch"}),
    "convolution_flat.cuh",
    "rf::Flat<rf::{mode}, rf::{tile}, {channels}>",
    tiles={"broad": (128, 256), "slim": (64, 512)},  # features, places of a block
    splits={"broad": (1,), "slim": (1,)},
    packs=True,
)
# of the kernel: places of a tile, bytes of shared memory beside kernels and windows, the fewest
# stages of kernels that each consumer has
_PLACES, _FIXED, _LEAST_STAGES = 256, 33 << 10, 3
_SHARED = 232448


class Convolution(Protocol):
    """What is asked of a convolution: `convolve.Convolution`."""

    @property
    def images(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def features(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def kernel(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def paddings(self) -> tuple[int, ...]: ...
    @property
    def axes(self) -> tuple[Axis, ...]: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def output_padding(self) -> tuple[int, ...] | None: ...


C = TypeVar("C")


class _Taken(Protocol):
    """A kernel that is taken for a convolution: `convolve.Algorithm`."""

    @property
    def schedule(self) -> Schedule: ...


A = TypeVar("A", bound=_Taken)


def left_out(choice: Callable[[C], A | None]) -> Callable[[C], A | None]:
    """A choice of kernels for convolutions that takes the library's call for this one."""

    def chosen(c: C) -> A | None:
        taken = choice(c)
        return None if taken is None or taken.schedule.kernels is FLAT else taken

    return chosen


def channels_at_once(channels: int, schedule: Schedule, kind: str) -> int:
    """Of a window in shared memory, of a group that has so many. Of fp32 class, whose images and
    kernels are twice as large, two consumers with windows of their own have room for 32."""
    slim = schedule.sizes[0] == 64
    return 64 if channels % 64 == 0 and not (slim and kind == "ieee") else 32


def takes(schedule: Schedule, c: Convolution, kind: str) -> bool:
    """Whether the kernel computes a convolution: by steps of one, or a transposed one of two phases
    along the width at most (of fp32 class one), each of which has taps; where no more is padded
    than the kernel reaches over."""
    pieces = 2 if kind == "ieee" else 1
    if not (max(c.strides) == 1 or c.transposed) or c.axes[-1].phases > 2 // pieces:
        return False
    if any(not 0 <= pad <= a.far for pad, a in zip(_pads(c), c.axes, strict=True)):
        return False
    if any(0 in a.taps or a.padding < 0 for a in c.axes):
        return False
    at_once, high = channels_at_once(c.channels // c.groups, schedule, kind), schedule.sizes[0]
    wide = _PLACES // pieces // c.axes[-1].phases + _pads(c)[-1] + c.axes[-1].most
    windows = (2 if high == 128 else 4) * at_once * 2 * pieces * wide
    stages = 2 * _LEAST_STAGES * 64 * at_once * 2 * pieces
    return windows + stages <= _SHARED - _FIXED


def _pads(c: Convolution) -> list[int]:
    """Places of zeros before an image along each axis: of a transposed one as many as the result's
    last place sees behind it."""
    if c.output_padding is None:
        return list(c.paddings)
    return [
        (a.far - a.padding + e) // a.stride for a, e in zip(c.axes, c.output_padding, strict=True)
    ]


def places(c: Convolution) -> int:
    """Of all images, with what is padded between rows and images."""
    return c.images * prod(s + pad for s, pad in zip(c.sizes, _pads(c), strict=True))


def products(schedule: Schedule, c: Convolution) -> float:
    """Of whole tiles, with processors that idle in the last wave. A tile of several phases has as
    many places fewer, and each tap is of one phase."""
    high, wide = schedule.sizes
    each, together = channels_at_once(c.channels // c.groups, schedule, "tf32"), c.axes[-1].phases
    of_places = -(-places(c) * together // wide) * prod(a.phases for a in c.axes[:-1])
    tiles = c.groups * -(-(c.features // c.groups) // high) * of_places
    phases = prod(a.phases for a in c.axes)
    depth = -(-(c.channels // c.groups) // each) * each * prod(c.kernel) / phases
    return -(-tiles // PROCESSORS) * PROCESSORS * high * wide * depth


def moved(c: Convolution, kind: str) -> int:
    """Bytes that the pass before the kernel moves, beside the images, which are read once: they are
    written in 16 bits, of fp32 class in twice 16, and read again."""
    return (8 if kind == "ieee" else 4) * c.channels * places(c)
