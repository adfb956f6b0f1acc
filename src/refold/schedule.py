"""How a product is cut into tiles on a GPU: the kernels that there are, their choices, and a
sensible one without timing.

A tile is 256 x 128 (tall), 128 x 256 (wide) or 128 x 128 (small) of the result; `splits` blocks may
share a tile, each with its part of K, where there are too few tiles for the device's processors.
Without splits, tiles that are left over once every processor has had as many are shared out on
Hopper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

PROCESSORS = 132  # of an H200; a default only has to be near
SKINNY_ROWS = 16  # at most so many rows: a product is one reading of the weights
_MOST_SCHEDULES, _WORTH_A_KERNEL = 3, 1.25
_LEAST_DEPTH = 256  # of K for each part; what fewer would do was not timed
_RS = 1.28  # products that split their rows, beside others


@dataclass(frozen=True)
class TileCost:
    """What a product takes on an H200 besides multiplying, in units of the products of one tile of
    256 x 128 for each of K.

    Fitted to the times of all schedules at 25 shapes (bench/cuda_schedules.py), so that what is
    chosen is nearly as fast as the fastest: tests/test_tune.py says how nearly.

    small: how much longer the tiles of 128 x 128 take that make up such a tile. share: blocks that
    share a tile write their parts and read a share of them, for each such block. wave: the end of
    such a tile. shared: how much longer tiles take where some are left over and shared out
    (stream_k.cuh decides it), and joining: joining their parts. start: launches. split: a pass over
    x before, for each element.
    """

    small: float
    share: float
    wave: float
    shared: float
    joining: float
    start: float
    split: float


# A unit takes 32 to 39 ns in Ieee, and 13 to 14 ns where an element is a single product.
IEEE = TileCost(1.15, 2.3, wave=10, shared=1.1, joining=430, start=80, split=4.9e-5)
TF32 = TileCost(1.06, 4.5, wave=0, shared=1.3, joining=490, start=380, split=1.1e-4)
NATIVE = TileCost(1.03, 4.5, wave=0, shared=1.3, joining=490, start=380, split=0)
_A_LAUNCH = 80.0  # units: one more of the launches that TileCost.start counts
_UNIT = 36e-9  # seconds of a unit of Ieee
_CUBLAS = 45e12  # FLOP/s of cuBLAS's products of fp32
_CUBLAS_TILE = 64  # rows and columns of the smallest that it takes for large batches
# by kind of product: of fp32 its accuracy, else the dtype of its operands
TILE_COSTS = {"ieee": IEEE, "tf32": TF32, "float16": NATIVE, "bfloat16": NATIVE}


@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernels of products for GPUs that can do the same.

    requires: features of the device (devices/device.py). header: in kernels/cuda. type: the C++
    type that they are instantiated with, from the `{mode}`, `{tile}` and `{splits}`. tiles: rows
    and columns by name. splits: of each tile, by how many blocks it may be shared. rs_split_k:
    the same where x is split on its way to the tensor cores; empty where that is not done. slow:
    how much longer a tile takes than one of the same area of `WGMMA`. shares_left_over: tiles that
    are left over once every processor has had as many are shared out. copies_tiles: a unit of its
    own copies operands, which lie at multiples of 16 bytes. packs: the product packs a value
    itself, some rows at a time. quantizes: of which tiles a value may be stored quantized.
    """

    name: str
    requires: frozenset[str]
    header: str
    type: str
    tiles: Mapping[str, tuple[int, int]]
    splits: Mapping[str, tuple[int, ...]]
    rs_split_k: tuple[int, ...] = ()
    slow: float = 1.0
    shares_left_over: bool = False
    copies_tiles: bool = False
    packs: bool = False
    quantizes: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return self.name


_FEW, _MANY = (1, 2, 4, 8), (1, 2, 4, 8, 16, 32)
WGMMA = Kernels(
    "wgmma",
    frozenset({"tma", "wgmma", "clusters", "setmaxnreg", "dependent_launch"}),
    "launch_sm90.cuh",
    "rf::Schedule<rf::{mode}, rf::{tile}, {splits}>",
    tiles={"tall": (256, 128), "wide": (128, 256), "small": (128, 128)},
    splits={"tall": _FEW, "wide": _FEW, "small": _MANY},
    rs_split_k=_FEW,
    shares_left_over=True,
    copies_tiles=True,
    packs=True,
    quantizes=frozenset({"tall", "wide"}),  # whose warpgroups have 128 rows to themselves
)
MMA_SYNC = Kernels(
    "mma_sync",
    frozenset({"mma_sync", "cp_async"}),
    "launch_sm80.cuh",
    "rf::Generic<rf::{mode}, {splits}>",
    tiles={"tall": (128, 128)},  # its one size
    splits={"tall": _FEW},
    slow=2.0,
)
KERNELS = (WGMMA, MMA_SYNC)  # the best first


def kernels_of(features: frozenset[str]) -> Kernels:
    """The best kernels of products for a device that has these features.

    Raises ValueError where there are none.
    """
    for kernels in KERNELS:
        if kernels.requires <= features:
            return kernels
    least = sorted(MMA_SYNC.requires)
    raise ValueError(f"products on a GPU need {least} at least, got {sorted(features)}")


@dataclass(frozen=True)
class Schedule:
    """How a product is cut.

    tile: of the kernels' tiles. splits: blocks that share a tile. plain: by CUDA cores in fp32,
    without packed operands. rs: tensor cores read A from registers (wgmma's RS form), so that
    x is split on its way there, again for each tile of columns, and not before.
    """

    kernels: Kernels
    tile: str = "tall"
    splits: int = 1
    plain: bool = False
    rs: bool = False

    def text(self, mode: str, channels: int = 0) -> str:
        """The C++ type that the kernels are instantiated with. channels: of patches, at a time."""
        if self.plain:
            return "rf::Plain"
        mode = "IeeeRS" if self.rs else mode
        tile = self.tile.capitalize()
        names = {"mode": mode, "tile": tile, "splits": self.splits}
        return self.kernels.type.format(**names, channels=channels)

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.kernels.tiles[self.tile]


# how a product of (rows, columns, depth) and one of these kinds is cut
ScheduleChooser = Callable[[int, int, int, str], Schedule]


def by_rule(kernels: Kernels) -> ScheduleChooser:
    """`default_schedule` for the kinds of products that a device has."""

    def choose(rows: int, cols: int, depth: int, kind: str) -> Schedule:
        return default_schedule(kernels, rows, cols, depth, kind == "ieee", TILE_COSTS[kind])

    return choose


def schedules(kernels: Kernels, rs: bool = False) -> list[Schedule]:
    """Every schedule on tensor cores, for a tuner to time; rs: also those that split x."""
    found = [Schedule(kernels, tile, n) for tile in kernels.tiles for n in kernels.splits[tile]]
    more = [Schedule(kernels, splits=n, rs=True) for n in kernels.rs_split_k if rs]
    return found + more


def default_schedule(
    kernels: Kernels,
    rows: int,
    cols: int,
    depth: int,
    rs: bool = False,
    tile_cost: TileCost = IEEE,
) -> Schedule:
    """The schedule that should take least time: waves of tiles, each as deep as its part of K.

    rs: x may be split on its way to the tensor cores.
    """
    if is_small(rows, cols, depth):
        return Schedule(kernels, plain=True)
    return _least(kernels, rows, cols, depth, rs, tile_cost)


@lru_cache(maxsize=4096)  # blocks repeat
def _least(
    kernels: Kernels, rows: int, cols: int, depth: int, rs: bool, tile_cost: TileCost
) -> Schedule:
    def cost(s: Schedule) -> tuple[float, int]:
        return predicted(s, rows, cols, depth, tile_cost), s.splits

    return min(schedules(kernels, rs), key=cost)


def by_rows(
    chosen: Schedule,
    rows: int,
    cols: int,
    depth: int,
    rs: bool = False,
    tile_cost: TileCost = IEEE,
) -> list[tuple[int | None, Schedule]]:
    """How to cut a product whose number of rows varies from call to call.

    chosen: the schedule for `rows`, the number that the model was captured with. Gives (limit,
    schedule): up to `limit` rows are cut so, and by the last one (None) any more. Each one is a
    kernel to compile, so there is another one only where `chosen` would take much longer.
    """
    if chosen.plain:
        return [(None, chosen)]
    counts = sorted({*(1 << n for n in range(5, 18)), rows})

    def cost(s: Schedule, n: int) -> float:
        return predicted(s, n, cols, depth, tile_cost)

    best = {n: _least(chosen.kernels, n, cols, depth, rs, tile_cost) for n in counts}
    candidates = [chosen]

    def candidate(n: int) -> Schedule:
        return chosen if n == rows else min(candidates, key=lambda s: cost(s, n))

    def regret(n: int) -> float:
        return cost(candidate(n), n) / cost(best[n], n)

    while len(candidates) < _MOST_SCHEDULES:
        worst = max((n for n in counts if n != rows), key=regret)
        if regret(worst) < _WORTH_A_KERNEL:
            break
        candidates.append(best[worst])
    found: list[tuple[int | None, Schedule]] = []
    for n in counts:
        if found and found[-1][1] == candidate(n):
            found.pop()
        found.append((n, candidate(n)))
    return [*found[:-1], (None, found[-1][1])]


def batch_pays(batches: int, rows: int, cols: int, depth: int, rs: bool = False) -> bool:
    """Whether a batch of fp32 products is faster than cuBLAS's, which reads both sides as they are.

    rows: of all of them together, as in `predicted`. rs: x may be split on its way to the
    tensor cores. cuBLAS's tiles are full only where rows and columns are multiples of them: 768
    products of 197 x 197 x 64 take it 191 us on an H200, those of 197 x 64 x 197 135; 2.2 and 1.6
    times what as many operations take in large products.
    """
    if min(rows // batches, cols) <= SKINNY_ROWS or depth < 32:
        return False
    candidate = batch_schedule(WGMMA, batches, rows, cols, depth, rs)
    ours = predicted(candidate, rows, cols, depth, IEEE, batches)
    packing = IEEE.split * batches * cols * depth + _A_LAUNCH
    full = batches * _up(rows // batches, _CUBLAS_TILE) * _up(cols, _CUBLAS_TILE)
    return (ours + packing) * _UNIT < 0.85 * 2 * full * depth / _CUBLAS


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def batch_pays_on_ampere(batches: int, rows: int, cols: int, depth: int, rs: bool = False) -> bool:
    """The same where both sides are split before, in all cases."""
    return batch_pays(batches, rows, cols, depth)


def batch_schedule(
    kernels: Kernels,
    batches: int,
    rows: int,
    cols: int,
    depth: int,
    rs: bool = False,
    tile_cost: TileCost = IEEE,
) -> Schedule:
    """The `default_schedule` for a batch of products, whose rows are `rows` together."""

    def cost(s: Schedule) -> tuple[float, int]:
        return predicted(s, rows, cols, depth, tile_cost, batches), s.splits

    return min(schedules(kernels, rs), key=cost)


def predicted(
    s: Schedule, rows: int, cols: int, depth: int, tile_cost: TileCost = IEEE, batches: int = 1
) -> float:
    """What a schedule costs, in units of one large tile's products for each of K.

    batches: how many products the rows belong to, as many to each; tiles do not reach across.
    """
    before = tile_cost.start + (0.0 if s.rs else tile_cost.split * rows * depth)
    return before + tile_units(s, rows, cols, depth, tile_cost, batches)


def tile_units(
    s: Schedule, rows: int, cols: int, depth: int, tile_cost: TileCost = IEEE, batches: int = 1
) -> float:
    """The same without launches and the pass that splits x before."""
    if s.splits > 1 and depth < s.splits * _LEAST_DEPTH:
        return float("inf")
    high, wide = s.sizes
    size = high * wide / 32768
    unit = size * s.kernels.slow * (tile_cost.small if s.tile == "small" else 1.0)
    unit *= _RS if s.rs else 1.0
    tiles = batches * -(-(rows // batches) // high) * -(-cols // wide)
    slots = max(1, PROCESSORS // s.splits)
    sharing = min(tiles, slots) * s.splits * size * tile_cost.share if s.splits > 1 else 0.0
    ends = -(-tiles // slots) * (tile_cost.wave * size + sharing)
    waves = -(-tiles // slots) * depth / s.splits * unit
    left = tiles % slots
    shares = s.kernels.shares_left_over and s.splits == 1 and not s.rs
    if shares and slots <= 4 * left <= 3.5 * slots:
        waves = min(waves, tiles / slots * depth * unit * tile_cost.shared + tile_cost.joining)
    return waves + ends


def is_small(rows: int, cols: int, depth: int) -> bool:
    """Whether CUDA cores are done before operands would be packed.

    A processor takes 38 ns for each of K on a tile of 128 x 64; packing is a launch and a pass over
    x, 5 us at least. A side of a few rows leaves the tensor cores' tiles empty.
    """
    if min(rows, cols) <= SKINNY_ROWS or depth < 32:
        return True
    return plain_seconds(rows, cols, depth) < 5e-6


def plain_seconds(rows: int, cols: int, depth: int) -> float:
    """Seconds of a product by CUDA cores, in tiles of 128 x 64."""
    waves = -(-(-(-rows // 128) * -(-cols // 64)) // PROCESSORS)
    return waves * depth * 38e-9
