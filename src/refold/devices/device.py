"""What a device is: one record holds every fact of it.

Nothing else in the project lists devices: prices, the targets, the choice of kernels, the
command line and the tests ask the records of table.py. What depends on what a device can do asks
for a feature, not for its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

# What kernels may require of a device.
FEATURES = frozenset(
    {
        "mma_sync",  # tensor cores that a warp feeds from its registers
        "cp_async",  # copies to shared memory that a thread starts and does not wait for
        "tma",  # copies of whole tiles by a unit of their own
        "wgmma",  # tensor cores that four warps feed from shared memory
        "clusters",  # blocks that share their shared memory
        "setmaxnreg",  # warps that give registers to others
        "dependent_launch",  # a kernel that begins while the one before it ends
    }
)

# The products that a device's kernels compute: a test of the operands' dtypes in memory (x, then
# the weight) and of whether the weight is a folded parameter.
Products = Callable[[torch.dtype, torch.dtype, bool], bool]
# The same of batches of products: of how many, their rows together, columns and depth, and whether
# the first side is a value that lies as it is read.
Batches = Callable[[int, int, int, int, bool], bool]


def float32_products(x: torch.dtype, weight: torch.dtype, folded: bool) -> bool:
    return x == weight == torch.float32


@dataclass(frozen=True)
class Converts:
    """Bytes/s, read and written, at which images are converted where a library computes with their
    channels last: those it is given, the results that it gives back, and by a call of PyTorch's
    beforehand, those of up to 64 channels and those of more."""

    given: float
    back: float
    beforehand: float
    of_many: float


@dataclass(frozen=True)
class Device:
    """A processor or a GPU, or a family of them, for which kernels are made.

    name: of the target, such as "cuda:sm_90". toolchain: what compiles for it, "cpp" or "cuda".
    capability: of a GPU, CUDA's number. runs_later: what is compiled for it also runs on GPUs of
    greater capability. flags: of nvcc, that say what it compiles for. features: of FEATURES.
    run_on: the processor or GPU on which its kernels were run; empty if they never were.

    Rates are sustained. product_flops: FLOP/s of float32-accurate matrix products. plain_flops:
    multiply-adds per second outside them. bandwidth: bytes/s of main memory. folded: how many
    products one with a folded weight takes. rates: both for products whose operands in memory have
    another dtype than float32.

    Seconds of the host: launch, to start one kernel; call, more for one of PyTorch's functions that
    computes; view, for one that gives a view; memory, to get memory for what a kernel writes.

    products: which products our kernels compute. batches: which batches of float32 products, if
    any. adds_bias: PyTorch adds the bias of a convolution in a pass of its own. holds_rows: kernels
    of rows have them in registers. exponentials: products reduce rows by logsumexp in one pass.
    turns: products of float32 read operands that lie the other way round. quantizes: from how many
    bytes on a value of products of TF32 is kept in 16 bits until it is normalised, if ever
    (planner/quantize.py). transposed: how many times as long as a convolution of as many products
    the library's transposed one by steps of one takes; 1 where nobody timed it. gathers:
    `transposed` is of volumes alone, and of a transposed one the library multiplies for each place
    of the result, not of the image. converts: of a library that computes convolutions of TF32 with
    their channels last, how fast, if somebody timed it. crosses: the share of the bandwidth at
    which PyTorch copies a value whose neighbours lie apart, as those of a transposed matrix.
    """

    name: str
    toolchain: str
    product_flops: float
    plain_flops: float
    bandwidth: float
    launch: float
    call: float = 0.0
    view: float = 1.5e-6
    memory: float = 0.5e-6
    capability: tuple[int, int] | None = None
    runs_later: bool = False
    flags: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    run_on: str = ""
    folded: float = 1.0
    library: float = 1.0
    rates: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)
    products: Products = float32_products
    batches: Batches | None = None
    adds_bias: bool = False
    holds_rows: bool = False
    exponentials: bool = False
    turns: bool = False
    quantizes: int | None = None
    transposed: float = 1.0
    converts: Converts | None = None
    gathers: bool = False
    crosses: float = 1.0

    def __post_init__(self) -> None:
        if unknown := self.features - FEATURES:
            raise ValueError(f"{self.name}: expected features of FEATURES, got {sorted(unknown)}")
        if self.toolchain == "cuda" and self.capability is None:
            raise ValueError(f"{self.name}: a GPU needs its compute capability")

    @property
    def architecture(self) -> str:
        """The name without the kind of device: "sm_90", "cpu"."""
        return self.name.rpartition(":")[2]

    @property
    def warning(self) -> str | None:
        """What a user should know before the kernels run, or None."""
        if self.run_on:
            return None
        return (
            f"kernels for {self.name} compile, but were never run on such a device, and its speeds"
            " are taken from data sheets: judge what is written before you use it"
        )

    def runs_on(self, capability: tuple[int, int] | None) -> bool:
        """Whether a machine with such a GPU (None: without one) can run what is made for it."""
        if self.capability is None:
            return True
        if capability is None:
            return False
        return capability == self.capability or (self.runs_later and capability > self.capability)
