"""How a product is cut into tiles on a GPU: the choices, and a sensible one without timing.

A tile is 256 x 128 (tall) or 128 x 256 (wide) of the result; `splits` blocks may share a tile, each
with its part of K, where there are too few tiles for the device's processors.
"""

from __future__ import annotations

from dataclasses import dataclass

PROCESSORS = 132  # of an H200; a default only has to be near
_LEAST_DEPTH = 512  # of K for each part: below it the merging costs more than it spreads


@dataclass(frozen=True)
class Schedule:
    """One way to cut a product. text: the C++ type that the kernels are instantiated with."""

    architecture: str
    tall: bool
    splits: int

    def text(self, mode: str) -> str:
        tall = "true" if self.tall else "false"
        return f"rf::Schedule<rf::{mode}, {tall}, {self.splits}>"

    @property
    def tile(self) -> tuple[int, int]:
        return (256, 128) if self.tall else (128, 256)


def schedules(architecture: str) -> list[Schedule]:
    """Every way, for a tuner to time."""
    return [
        Schedule(architecture, tall, splits) for tall in (True, False) for splits in (1, 2, 4, 8)
    ]


def default_schedule(architecture: str, rows: int, cols: int, depth: int) -> Schedule:
    """The way that should take least time: waves of tiles, each as deep as its part of K."""

    def rounds(s: Schedule) -> tuple[float, int]:
        high, wide = s.tile
        tiles = -(-rows // high) * -(-cols // wide)
        waves = -(-tiles // max(1, PROCESSORS // s.splits))
        deep_enough = depth >= s.splits * _LEAST_DEPTH or s.splits == 1
        # sharing a tile costs the writing and reading of its parts: as much as 128 of K or so
        cost = waves * (depth / s.splits + (128 * s.splits if s.splits > 1 else 0))
        return (cost if deep_enough else float("inf"), s.splits)

    return min(schedules(architecture), key=rounds)
