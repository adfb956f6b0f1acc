"""Which convolutions our kernels compute, by timing both sides on the GPU at hand; kept on disk.

A side is a whole emitted module of one convolution, its bias and a pointwise function: our kernel,
or PyTorch's call and a kernel for what follows. What our kernel computes has to be as near float64
as PyTorch's call is: a class of accuracy is what the library was measured to have, whatever the
flag allows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from refold.convolve import Convolution, Way, by_rule, ways
from refold.measure import clock
from refold.tune import Table

# compiles a module of one convolution, computed in some way, and gives its fast twin
Build = Callable[[nn.Module, torch.Tensor, Way | None], nn.Module]

_TF32_ERROR = 1e-5  # relative, of what is no longer fp32
_ALLOWED = 1.5  # times the library's error, of random numbers
_FASTER = 0.97  # of the library's time: less is noise
_SECONDS = 0.05
_KINDS: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class Sides:
    """What was measured. seconds: of each way that is accurate enough; of None, PyTorch's call."""

    kind: str
    seconds: dict[Way | None, float]

    @property
    def best(self) -> Way | None:
        library = self.seconds[None]
        ours = [(s, w) for w, s in self.seconds.items() if w is not None]
        taken, way = min(ours, key=lambda pair: pair[0], default=(library, None))
        return way if taken < _FASTER * library else None


Measure = Callable[[Convolution, str], Sides]


class TunedImages(Table):
    """Answers as a `convolve.Choice` with what is known of a device; what is not is PyTorch's.

    device: its name. library: the version of PyTorch's library. allowed: the accuracy that
    PyTorch's flag allows.
    """

    def __init__(self, device: str, library: str, allowed: str) -> None:
        super().__init__(f"{device}, convolutions, library {library}, {allowed}")
        self.allowed = allowed

    def __call__(self, convolution: Convolution) -> Way | None:
        row = self.row(name_of(convolution))
        try:
            tile, kind = row["tile"], row["kind"]
        except (KeyError, TypeError):
            return None
        if kind not in ("ieee", self.allowed):
            return None
        return next((Way(s, kind) for s in ways() if s.tile == tile), None)

    def knows(self, convolution: Convolution) -> bool:
        row = self.row(name_of(convolution))
        return isinstance(row, dict) and {"tile", "kind"} <= row.keys()

    def fill(self, wanted: Iterable[Convolution], measure: Measure) -> None:
        """Measure those that are not known yet, and keep the best side of each."""
        for convolution in dict.fromkeys(wanted):
            if self.knows(convolution):
                continue
            sides = measure(convolution, self.allowed)
            best = sides.best
            us = {
                "library" if way is None else way.schedule.tile: round(s * 1e6, 2)
                for way, s in sides.seconds.items()
            }
            tile = None if best is None else best.schedule.tile
            self.keep(name_of(convolution), {"tile": tile, "kind": sides.kind, "us": us})


def name_of(c: Convolution) -> str:
    """A row's name: all sizes, since what is faster hangs on each."""

    def text(sizes: tuple[int, ...]) -> str:
        return "x".join(map(str, sizes))

    more = "/".join(map(text, (c.strides, c.paddings, c.dilations)))
    images = text((c.images, c.channels, *c.sizes))
    return f"{images} by {text((c.features, *c.kernel))} {more} groups {c.groups}"


def example_of(c: Convolution, device: str) -> tuple[nn.Module, torch.Tensor]:
    """A convolution with a bias and a function behind it, and images for it."""
    conv = _KINDS[len(c.sizes) - 1](
        c.channels, c.features, c.kernel, c.strides, c.paddings, c.dilations, c.groups
    )
    module = nn.Sequential(conv, nn.Sigmoid()).to(device).eval()
    return module, torch.randn(c.images, c.channels, *c.sizes, device=device)


def measured(c: Convolution, allowed: str, build: Build, device: str = "cuda") -> Sides:
    """Both sides of a convolution on a device."""
    module, x = example_of(c, device)
    with torch.no_grad():
        truth = copy.deepcopy(module).double()(x[:1].double())
        library = _error(module, x, truth)
        kind = allowed if library > _TF32_ERROR else "ieee"
        rule = by_rule(allowed)(c)
        candidates = [] if rule is None else [Way(rule.schedule, kind)]
        seconds = {}
        for way in (None, *candidates):
            fast = build(module, x, way)
            if way is None or _error(fast, x, truth) <= _ALLOWED * max(library, 1e-7):
                seconds[way] = _seconds(fast, x, device)
    return Sides(kind, seconds)


def _error(module: nn.Module, x: torch.Tensor, truth: torch.Tensor) -> float:
    """Of the first image, relative."""
    got = module(x)[:1].double()
    return float((got - truth).norm() / truth.norm())


def _seconds(module: nn.Module, x: torch.Tensor, device: str) -> float:
    """The median of three rounds."""
    once = min(clock(lambda: module(x), device) for _ in range(3))
    repeats = max(1, int(_SECONDS / max(once, 1e-6)))
    return sorted(clock(lambda: module(x), device, repeats) for _ in range(3))[1]
