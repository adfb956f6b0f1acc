"""How the kernel by patches (families/convolution/cuda/convolution_patches.cuh) cuts a convolution:
the box of places of a tile, what it sees of an image, and how many channels of that fit shared
memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, gcd, prod

# of cuda/patch.cuh: bytes that each block of sm_86 can have; warps; the least width of a box
_SHARED, _WARPS, _LEAST_WIDE = 99 << 10, 8, 8
_WORSE = 1.3  # so much more work a box may be where all channels fit at once


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution. made: places of the result. transposed: its taps are those of a
    transposed one, whose stride is the number of its phases."""

    made: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    transposed: bool

    @property
    def phases(self) -> int:
        return self.stride if self.transposed else 1

    @property
    def places(self) -> int:
        """Of a phase."""
        return -(-self.made // self.phases)

    @property
    def far(self) -> int:
        """From the first tap to the last."""
        return (self.kernel - 1) * self.dilation

    @property
    def most(self) -> int:
        """How far behind its own place, of a phase, one sees an image, of all phases."""
        if not self.transposed:
            return self.far - self.padding
        return floor((self.stride - 1 + self.padding) / self.stride)

    @property
    def reach(self) -> int:
        """Elements of an image from the first that a place sees to the last, of all phases."""
        if not self.transposed:
            return self.far
        return self.most - ceil((self.padding - self.far) / self.stride)

    def seen(self, places: int) -> int:
        """Elements of an image that so many places see."""
        return (places - 1) * (1 if self.transposed else self.stride) + self.reach + 1

    @property
    def taps(self) -> list[int]:
        """Of each phase."""
        if not self.transposed:
            return [self.kernel]
        apart = self.stride // gcd(self.stride, self.dilation)

        def first(phase: int) -> int:
            shifted = (phase + self.padding - t * self.dilation for t in range(apart))
            return next((t for t, at in enumerate(shifted) if at % self.stride == 0), self.kernel)

        firsts = map(first, range(self.stride))
        return [max(0, -(-(self.kernel - first) // apart)) for first in firsts]


def _boxes(places: int, axes: tuple[Axis, ...]) -> Iterator[tuple[float, int]]:
    """Of each box of so many places: its work for all of a result, and the elements that it sees of
    a channel."""
    log = places.bit_length() - 1
    for log_wide in range(log, _LEAST_WIDE.bit_length() - 2, -1):
        for log_high in range(log - log_wide, -1, -1):
            sides = 1 << log - log_wide - log_high, 1 << log_high, 1 << log_wide
            if any(s > 1 for s in sides[: 3 - len(axes)]):
                continue
            box = sides[3 - len(axes) :]
            plane = prod(a.seen(s) for a, s in zip(axes, box, strict=True))
            boxes = prod(-(-a.places // s) for a, s in zip(axes, box, strict=True))
            yield boxes * (4.0 * places + plane), plane


@lru_cache(maxsize=4096)
def channels_at_once(channels: int, axes: tuple[Axis, ...], places: int) -> int:
    """How many channels of a patch lie in shared memory at a time, of a group that has so many;
    0 where none fit. places: of a tile."""
    boxes = sorted(_boxes(places, axes))
    joined = 2 if axes[-1].phases == 2 else 1
    phases = prod(a.phases for a in axes)
    for chunks in range(1, channels + 1):
        at_once = -(-channels // chunks)
        steps = (prod(a.kernel for a in axes) * at_once + 7 * phases) // 8 + 1
        room = _SHARED - _WARPS * 16 * (32 * joined + 8) * 4 - steps * 32
        few = at_once <= 8
        for work, plane in boxes:
            pitch = (plane + 23) // 32 * 32 + 8
            fits = (2 if chunks > 1 else 1) * at_once * pitch * 4 <= room
            if fits and (few or work <= _WORSE * boxes[0][0]):
                return at_once
    return 0


def depth(channels: int, at_once: int, axes: tuple[Axis, ...]) -> int:
    """Products of the sums of one place of each phase, with those that fill steps of 8 of K."""
    chunks = -(-channels // at_once)
    every = [1]
    for a in axes:
        every = [t * more for t in every for more in a.taps]
    return sum(-(-t * at_once // 8) * 8 for t in every) * chunks
