"""Which convolutions our kernels compute, by timing both sides at hand; kept on disk.

A side is a whole emitted module of one convolution, its bias and a pointwise function: our kernel,
or PyTorch's call and a kernel for what follows. What our kernel computes has to be as near float64
as PyTorch's call is: a class of accuracy is what the library was measured to have, whatever the
flag allows, and fp32's where the library has it at other sizes (`conv_class.kind_of`).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import nn

from refold import turns
from refold.conv_class import kind_of
from refold.convolve import (
    KERNELS,
    ON_CPU,
    Algorithm,
    Convolution,
    candidates,
    tile_products,
)
from refold.measure import clock
from refold.tune import AT_ONCE, Table, side_by_side

# compiles a module of one convolution, computed by some algorithm, and gives its fast twin
Build = Callable[[nn.Module, torch.Tensor, Algorithm | None], nn.Module]

_TF32_ERROR = 1e-5  # relative, of what is no longer fp32
_ALLOWED = 1.5  # times the library's error, of random numbers
_FASTER = 0.97  # of the library's time: less is noise
_SECONDS = 0.05
_TURNS = 5
_MOST_TIMED = 8
_KINDS: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED: tuple[Any, ...] = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Sides:
    """What was measured. seconds: of each algorithm that is accurate enough; of None, PyTorch's
    call."""

    kind: str
    seconds: dict[Algorithm | None, float]

    @property
    def best(self) -> Algorithm | None:
        library = self.seconds[None]
        ours = [(s, w) for w, s in self.seconds.items() if w is not None]
        taken, algorithm = min(ours, key=lambda pair: pair[0], default=(library, None))
        return algorithm if taken < _FASTER * library else None


Measure = Callable[[Convolution, str], Sides]


class TunedImages(Table):
    """Answers as a `convolve.Choice` with what is known of a device; what is not is PyTorch's.

    device: its name. library: the version of PyTorch's library. allowed: the accuracy that
    PyTorch's flag allows.
    """

    def __init__(self, device: str, library: str, allowed: str) -> None:
        key = f"{device}, convolutions, library {library}, {allowed}, kernels {_kernels()}"
        super().__init__(key)
        self.allowed = allowed

    def __call__(self, convolution: Convolution) -> Algorithm | None:
        row = self.row(name_of(convolution))
        try:
            kind, name = row["kind"], row["way"]
        except (KeyError, TypeError):
            return None
        if kind not in ("ieee", self.allowed):
            return None
        every = frozenset().union(*(k.requires for k in KERNELS))
        algorithms = [*candidates(convolution, kind, every), ON_CPU]
        return next((w for w in algorithms if _name(w) == name), None)

    def knows(self, convolution: Convolution) -> bool:
        row = self.row(name_of(convolution))
        return isinstance(row, dict) and {"way", "kind"} <= row.keys()

    def fill(self, wanted: Iterable[Convolution], measure: Measure) -> None:
        """Measure those that are not known yet, and keep the best side of each."""
        for convolution in dict.fromkeys(wanted):
            if self.knows(convolution):
                continue
            sides = measure(convolution, self.allowed)
            best = sides.best
            us = {_name(algorithm): round(s * 1e6, 2) for algorithm, s in sides.seconds.items()}
            row = {"way": _name(best), "kind": sides.kind, "us": us}
            self.keep(name_of(convolution), row)


@functools.cache
def _kernels() -> str:
    """A digest of our kernels' text: others are timed anew."""
    folder = resources.files("refold.families.convolution")
    texts = [
        f.read_text()
        for part in ("cpu", "cuda")
        for f in folder.joinpath(part).iterdir()
        if f.is_file()
    ]
    return hashlib.sha256("".join(sorted(texts)).encode()).hexdigest()[:8]


def _name(algorithm: Algorithm | None) -> str:
    return (
        "library"
        if algorithm is None
        else f"{algorithm.schedule.kernels.name} {algorithm.schedule.tile}"
    )


def name_of(c: Convolution) -> str:
    """A row's name: all sizes, since what is faster hangs on each."""

    def text(sizes: tuple[int, ...]) -> str:
        return "x".join(map(str, sizes))

    more = "/".join(map(text, (c.strides, c.paddings, c.dilations)))
    images = text((c.images, c.channels, *c.sizes))
    transposed = "" if c.output_padding is None else f" transposed {text(c.output_padding)}"
    return f"{images} by {text((c.features, *c.kernel))} {more} groups {c.groups}{transposed}"


def processor() -> str:
    """The processor at hand, as the threads that PyTorch may use see it."""
    found = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = next((n.partition(":")[2].strip() for n in lines if "model name" in n), found)
    level = torch.backends.cpu.get_cpu_capability()
    return f"{found}, {level}, {torch.get_num_threads()} threads"


def largest(convolutions: Iterable[Convolution], most: int = _MOST_TIMED) -> list[Convolution]:
    """Those of most products, each once, as many as are timed for one model: each is compiled in
    two algorithms, or more."""
    found = sorted(dict.fromkeys(convolutions), key=lambda c: -c.pixels * c.features * c.depth)
    return found[:most]


def example_of(c: Convolution, device: str) -> tuple[nn.Module, torch.Tensor]:
    """A convolution with a bias and a function behind it, and images for it."""
    dims, sizes = len(c.sizes) - 1, (c.channels, c.features, c.kernel, c.strides, c.paddings)
    if c.output_padding is None:
        conv = _KINDS[dims](*sizes, c.dilations, c.groups)
    else:
        conv = _TRANSPOSED[dims](*sizes, c.output_padding, c.groups, dilation=c.dilations)
    module = nn.Sequential(conv, nn.Sigmoid()).to(device).eval()
    return module, torch.randn(c.images, c.channels, *c.sizes, device=device)


def likely(c: Convolution, kind: str, features: frozenset[str]) -> list[Algorithm]:
    """Of each of our kernels the tile that should take least time."""
    best: dict[str, Algorithm] = {}
    algorithms = candidates(c, kind, features)
    for algorithm in sorted(algorithms, key=lambda w: tile_products(w.schedule, c)):
        best.setdefault(algorithm.schedule.kernels.name, algorithm)
    return list(best.values())


def measured(
    c: Convolution, allowed: str, features: frozenset[str], build: Build, device: str = "cuda"
) -> Sides:
    """All sides of a convolution on a device of some features, of which a CPU has none."""
    module, x = example_of(c, device)
    with torch.no_grad():
        truth = copy.deepcopy(module).double()(x[:1].double())
        library = _error(module, x, truth)
        # of few products cuDNN computes fp32 at some sizes and TF32 at others, of the same weights
        kind = kind_of(c, allowed) if library > _TF32_ERROR else "ieee"
        if not features:
            kind, algorithms = "ieee", [ON_CPU]
        else:
            algorithms = likely(c, kind, features)
        sides: dict[Algorithm | None, nn.Module] = {}
        choices = (None, *algorithms)
        at_once = 1 if device == "cpu" else AT_ONCE
        built = side_by_side(lambda choice: build(module, x, choice), choices, at_once)
        for algorithm, fast in zip(choices, built, strict=True):
            if algorithm is None or _error(fast, x, truth) <= _ALLOWED * max(library, 1e-7):
                sides[algorithm] = fast
        if not features:
            return Sides(kind, _in_turn(sides, x))
        return Sides(
            kind, {algorithm: _seconds(fast, x, device) for algorithm, fast in sides.items()}
        )


def _in_turn(
    sides: Mapping[Algorithm | None, nn.Module], x: torch.Tensor
) -> dict[Algorithm | None, float]:
    """The least of rounds in which the sides take turns; of one thread its own time, whatever else
    runs on the processor."""
    now = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter

    def seconds(side: nn.Module, repeats: int) -> float:
        start = now()
        for _ in range(repeats):
            side(x)
        return (now() - start) / repeats

    once = min(seconds(sides[None], 1) for _ in range(2))
    repeats = max(1, int(_SECONDS / _TURNS / max(once, 1e-6)))
    taken: dict[Algorithm | None, list[float]] = {algorithm: [] for algorithm in sides}
    for _ in range(_TURNS):
        for algorithm, side in sides.items():
            taken[algorithm].append(seconds(side, repeats))
    return {algorithm: min(times) for algorithm, times in taken.items()}


def _error(module: nn.Module, x: torch.Tensor, truth: torch.Tensor) -> float:
    """Of the first image, relative."""
    got = module(x)[:1].double()
    return float((got - truth).norm() / truth.norm())


def _seconds(module: nn.Module, x: torch.Tensor, device: str) -> float:
    """The median of three rounds."""
    with turns.alone():
        once = min(clock(lambda: module(x), device) for _ in range(3))
        repeats = max(1, int(_SECONDS / max(once, 1e-6)))
        return sorted(clock(lambda: module(x), device, repeats) for _ in range(3))[1]
