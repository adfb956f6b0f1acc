"""How a product is cut into tiles on a GPU: the choices, and a sensible one without timing.

A tile is 256 x 128 (tall) or 128 x 256 (wide) of the result; `splits` blocks may share a tile, each
with its part of K, where there are too few tiles for the device's processors. Without splits, tiles
that are left over once every processor has had as many are shared out on Hopper.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

PROCESSORS = 132  # of an H200; a default only has to be near
FEW_ROWS = 16  # at most so many rows: a product is one reading of the weights
# what every product costs besides, as so much of K: launches, packing few rows
_START = 300
_MOST_WAYS, _WORTH_A_KERNEL = 3, 1.25
_LEAST_DEPTH = 256  # of K for each part; what fewer would do was not timed
# Of an H200 under its power limit, in units of one tile's products for each of K (39 ns): a pass
# over x that splits it, for each element (1.9 ps); products that split their rows, beside others.
_PASS, _DIRECT = 4.9e-5, 1.28
# Joining the parts of tiles that blocks share because they are left over (portions.cuh, which
# decides it). Three shapes gave 970 to 1300 under the power limit; that some of it is the power
# which idle processors would not have taken is a guess.
_JOINING = 800


@dataclass(frozen=True)
class Schedule:
    """One way to cut a product.

    plain: by CUDA cores in fp32, without packed operands. tall: tiles of 256 x 128, not 128 x 256
    (the generic kernels have one size, 128 x 128). splits: blocks that share a tile. direct: x is
    split on its way to the tensor cores, again for each tile of columns, and not before.
    """

    architecture: str
    tall: bool = True
    splits: int = 1
    plain: bool = False
    direct: bool = False

    def text(self, mode: str) -> str:
        """The C++ type that the kernels are instantiated with."""
        if self.plain:
            return "rf::Plain"
        if self.architecture == "sm_80":
            return f"rf::Generic<rf::{mode}, {self.splits}>"
        mode = "Direct" if self.direct else mode
        return f"rf::Schedule<rf::{mode}, {str(self.tall).lower()}, {self.splits}>"

    @property
    def tile(self) -> tuple[int, int]:
        if self.architecture == "sm_80":
            return 128, 128
        return (256, 128) if self.tall else (128, 256)


def schedules(architecture: str, direct: bool = False) -> list[Schedule]:
    """Every way that uses tensor cores, for a tuner to time; direct: also those that split x."""
    shapes = itertools.product((True, False) if architecture == "sm_90" else (True,), (1, 2, 4, 8))
    ways = [Schedule(architecture, tall, splits) for tall, splits in shapes]
    more = [s for s in ways if direct and architecture == "sm_90" and s.tall]
    return ways + [replace(s, direct=True) for s in more]


def default_schedule(
    architecture: str, rows: int, cols: int, depth: int, direct: bool = False
) -> Schedule:
    """The way that should take least time: waves of tiles, each as deep as its part of K.

    direct: x may be split on its way to the tensor cores.
    """
    if _is_small(rows, cols, depth):
        return Schedule(architecture, plain=True)

    least = min(schedules(architecture), key=lambda s: (predicted(s, rows, cols, depth), s.splits))
    return directly(least, rows, cols, depth) if direct else least


def by_rows(
    chosen: Schedule, rows: int, cols: int, depth: int
) -> list[tuple[int | None, Schedule]]:
    """How to cut a product whose number of rows varies from call to call.

    chosen: the way for `rows`, the number that the model was captured with. Gives (limit,
    schedule): up to `limit` rows are cut so, and by the last one (None) any more. Each way is a
    kernel to compile, so there is another one only where `chosen` would take much longer.
    """
    if chosen.plain:
        return [(None, chosen)]
    counts = sorted({*(1 << n for n in range(5, 18)), rows})

    def cost(s: Schedule, n: int) -> float:
        return predicted(s, n, cols, depth) + _START

    best = {
        n: min(schedules(chosen.architecture), key=lambda s, n=n: (cost(s, n), s.splits))  # type: ignore[misc]
        for n in counts
    }
    ways = [chosen]

    def way(n: int) -> Schedule:
        return chosen if n == rows else min(ways, key=lambda s: cost(s, n))

    def regret(n: int) -> float:
        return cost(way(n), n) / cost(best[n], n)

    while len(ways) < _MOST_WAYS:
        worst = max((n for n in counts if n != rows), key=regret)
        if regret(worst) < _WORTH_A_KERNEL:
            break
        ways.append(best[worst])
    found: list[tuple[int | None, Schedule]] = []
    for n in counts:
        if found and found[-1][1] == way(n):
            found.pop()
        found.append((n, way(n)))
    return [*found[:-1], (None, found[-1][1])]


def predicted(s: Schedule, rows: int, cols: int, depth: int) -> float:
    """What a way costs, in units of one tile's products for each of K."""
    if s.splits > 1 and depth < s.splits * _LEAST_DEPTH:
        return float("inf")
    high, wide = s.tile
    tiles = -(-rows // high) * -(-cols // wide)
    slots = max(1, PROCESSORS // s.splits)
    # Blocks that share tiles all write their parts and read a share of them: 128 blocks of the
    # larger tiles take 8 us for it on an H200, as long as 280 of K.
    sharing = min(tiles, slots) * s.splits * high * wide / 32768 * 2.2 if s.splits > 1 else 0.0
    waves = -(-tiles // slots) * (depth / s.splits * (_DIRECT if s.direct else 1.0) + sharing)
    left = tiles % slots
    if s.architecture != "sm_90" or s.splits > 1 or s.direct:
        return waves
    if not slots <= 4 * left <= 3.5 * slots:
        return waves
    return min(waves, tiles / slots * depth + _JOINING)


def directly(s: Schedule, rows: int, cols: int, depth: int) -> Schedule:
    """The same way without a pass over x before it, if that should take less: few columns."""
    if s.architecture != "sm_90" or s.plain or not s.tall:
        return s
    ways = (replace(s, direct=True), s)
    return min(ways, key=lambda way: with_pass(way, rows, cols, depth))


def with_pass(s: Schedule, rows: int, cols: int, depth: int) -> float:
    """`predicted`, and the pass over x that splits it, where there is one."""
    return predicted(s, rows, cols, depth) + (0.0 if s.direct else _PASS * rows * depth)


def _is_small(rows: int, cols: int, depth: int) -> bool:
    """Whether CUDA cores are done before operands would be packed.

    A processor takes 38 ns for each of K on a tile of 128 x 64; packing is a launch and a pass over
    x, 5 us at least. A side of a few rows leaves the tensor cores' tiles empty.
    """
    if min(rows, cols) <= FEW_ROWS or depth < 32:
        return True
    waves = -(-(-(-rows // 128) * -(-cols // 64)) // PROCESSORS)
    return waves * depth * 38e-9 < 5e-6
