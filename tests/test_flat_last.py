"""Convolutions by one long row of places between those of the library, whose images lie with their
channels last, on the emulator."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nan
from unittest import mock

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.convolve import Algorithm, Choice, Convolution, every_schedule, takes
from refold.flat import FLAT
from refold.pipeline import Result
from refold.plan import Group
from test_convolutions import HOPPER, relative, truth_of
from test_models import written
from test_strips import SM_90
from tests.emulator.module import emulated

CLASS = 5e-4


def flat_where_there_are(*channels: int, tile: str = "slim") -> Choice:
    """The kernel for convolutions of so many channels, the library for others."""
    (schedule,) = (w for w in every_schedule(HOPPER) if w.tile == tile and w.kernels is FLAT)

    def chosen(c: Convolution) -> Algorithm | None:
        so = c.channels in channels and takes(schedule, c, "tf32")
        return Algorithm(schedule, "tf32") if so else None

    return chosen


@pytest.fixture(autouse=True)
def anyway() -> Iterator[None]:
    """Whatever is gained."""
    with (
        mock.patch("refold.planner.turned._GAIN", -1e9),
        mock.patch("refold.planner.chains.better", lambda plan, *others: plan),
        mock.patch("refold.planner.conversions.kind_of", lambda c, allowed: "tf32"),
    ):
        yield


def by_kernels(result: Result) -> list[Group]:
    plan = next((m.plan for m in result.modes if m.name == "eval"), result.modes[0].plan)
    return [g for g in plan.groups if g.family == "convolution"]


class Between(nn.Module):
    """The library's, two by kernels, the second with a shortcut, the library's again."""

    def __init__(self, features: int = 64, groups: int = 1, long: bool = False) -> None:
        super().__init__()
        self.long = long
        self.first = nn.Conv2d(3, 64, 3, stride=2, padding=1)
        self.a = nn.Conv2d(64, features, 3, padding=1, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(features)
        self.b = nn.Conv2d(features, 64, 3, padding=1, groups=groups)
        self.scale = nn.Parameter(torch.randn(64, 1, 1))
        self.last = nn.Conv2d(64, 33, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        y = torch.relu(self.norm(self.a(x)))
        y = self.b(y) * self.scale
        if self.long:
            y = nn.functional.mish(nn.functional.gelu(y)) + torch.tanh(y).sin()
        return torch.sigmoid(self.last(torch.relu(y + x)))


class Upward(nn.Module):
    """The library's, one by a kernel, a transposed one by another, the library's again."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 64, 3, stride=2, padding=1)
        self.a = nn.Conv2d(64, 72, 3, padding=1)
        self.up = nn.ConvTranspose2d(72, 64, kernel, 2, padding=1)
        self.last = nn.Conv2d(64, 33, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.a(torch.relu(self.first(x))))
        return torch.sigmoid(self.last(torch.relu(self.up(x))))


CASES = {
    "transposed by steps": (Upward(4), (64, 72), "slim"),
    "transposed by steps, an odd kernel": (Upward(3), (64, 72), "broad"),
    "": (Between(), (64,), "slim"),
    "broad, of features that fill no tile": (Between(100), (64, 100), "broad"),
    "features that are no multiple of four": (Between(70), (64, 70), "slim"),
    "groups": (Between(96, groups=2), (64, 96), "slim"),
    "a long body": (Between(long=True), (64,), "slim"),
}


def fast_of(module: nn.Module, x: torch.Tensor, channels: tuple[int, ...], tile: str):
    choice = flat_where_there_are(*channels, tile=tile)
    _, result = written(module.eval(), [x], SM_90, convolutions=choice)
    return pipeline.bind_for_class(emulated(result.text), module), result


@pytest.mark.parametrize("case", CASES)
def test_they_hand_images_on_with_their_channels_last(case: str) -> None:
    module, channels, tile = CASES[case]
    x = torch.randn(3, 3, 13, 18)
    fast, result = fast_of(module, x, channels, tile)
    a, b = by_kernels(result)
    assert (a.images, a.last, a.turned) == (b.images, b.last, b.turned) == (2, True, ())
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        for images in (x, torch.cat([x, x.flip(0)]), x[:1] * 1e4):
            assert relative(fast(images), truth_of(module, images)) < CLASS


class Mixed(nn.Module):
    """Images that the kernel reads in one order and stores in the other."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.before = before
        self.library = nn.Conv2d(3, 64, 3) if before else nn.Conv2d(66, 24, 3, stride=2)
        self.kernel = nn.Conv2d(64, 66, 3, padding=1)
        self.beside = nn.Conv2d(64, 8, 3, stride=2)  # without which nobody wants the first so

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        if self.before:
            y = torch.relu(self.library(x))
            return [torch.relu(self.kernel(y)), torch.sigmoid(self.beside(y))]
        return [torch.tanh(self.library(torch.relu(self.kernel(x))))]


@pytest.mark.parametrize("before", [True, False])
def test_one_side_may_lie_otherwise(before: bool) -> None:
    torch.manual_seed(0)
    module, x = Mixed(before), torch.randn(3, 3 if before else 64, 9, 11)
    fast, result = fast_of(module, x, (64,), "slim")
    (kernel,) = by_kernels(result)
    assert (kernel.images, kernel.last, kernel.turned) == (2, not before, kernel.sides[:1])
    with torch.no_grad():
        for got, truth in zip(fast(x), truth_of(module, x), strict=True):
            assert relative(got, truth) < CLASS


def test_volumes_and_transposed_ones() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv3d(4, 64, 2),
        nn.ReLU(),
        nn.ConvTranspose3d(64, 64, 3, padding=1),
        nn.Tanh(),
        nn.Conv3d(64, 5, 2),
        nn.Sigmoid(),
    )
    x = torch.randn(2, 4, 4, 5, 6)
    fast, result = fast_of(module, x, (64,), "broad")
    (kernel,) = by_kernels(result)
    assert kernel.images == 3 and kernel.last
    with torch.no_grad():
        assert relative(fast(x), truth_of(module, x)) < CLASS


@pytest.mark.parametrize(("where", "value"), [("images", nan), ("kernels", nan), ("kernels", inf)])
@pytest.mark.parametrize("transposed", [False, True])
def test_special_values(where: str, value: float, transposed: bool) -> None:
    """They are where PyTorch has them, and nothing else is touched."""
    torch.manual_seed(0)
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    module = nn.Sequential(
        nn.Conv2d(3, 64, 1), nn.Tanh(), kind(64, 64, 3, padding=1), nn.Tanh(), nn.Conv2d(64, 8, 1)
    )
    module.append(nn.Sigmoid())
    x = torch.randn(3, 3, 7, 9)
    fast, result = fast_of(module, x, (64,), "slim")
    assert [g.last for g in by_kernels(result)] == [True]
    with torch.no_grad():
        if where == "images":
            x[1, 2, 3, 4] = value
        else:
            for p in (module[2].weight, fast[2].weight):
                p[7, 5, 1, 1] = value
        got, eager = fast(x), module(x)
    assert torch.equal(got.isnan(), eager.isnan())
    known = eager.isfinite()
    assert known.any() or value != value
    assert not known.any() or relative(got[known], eager[known].double()) < CLASS


class Spread(nn.Module):
    """A vector along some of the places follows, or statistics of channels."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.first, self.kernel = nn.Conv2d(3, 64, 3, stride=2), nn.Conv2d(64, 64, 3)
        self.of_rows = nn.Parameter(torch.randn(7, 1))
        self.norm = nn.InstanceNorm2d(64) if norm else None
        self.last = nn.Conv2d(64, 8, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.kernel(torch.relu(self.first(x)))
        x = x + self.of_rows if self.norm is None else self.norm(x)
        return torch.relu(self.last(torch.relu(x)))


@pytest.mark.parametrize("norm", [False, True])
def test_what_wants_them_channels_first_does_not_keep_them(norm: bool) -> None:
    torch.manual_seed(0)
    module, x = Spread(norm), torch.randn(2, 3, 20, 20)
    fast, result = fast_of(module, x, (64,), "slim")
    (kernel,) = by_kernels(result)
    assert not kernel.last
    with torch.no_grad():
        assert relative(fast(x), truth_of(module, x)) < CLASS


class Shortcuts(nn.Module):
    """Kernels that read a shortcut in the other order than they store: the first of a network's
    blocks behind what makes images channels first, and the last before what wants them so."""

    def __init__(self, long: bool) -> None:
        super().__init__()
        self.long = long
        self.a, self.b = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))
        self.down = nn.Conv2d(64, 8, 3, stride=2)
        self.library = nn.Conv2d(64, 96, 3, stride=2, padding=1)
        self.c = nn.Conv2d(96, 64, 3, padding=1)
        self.d, self.e = (nn.Conv2d(64, 64, 3, padding=1) for _ in range(2))

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        if self.long:
            x = nn.functional.mish(nn.functional.gelu(x)) + torch.tanh(x).sin()
        return torch.relu(x)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = nn.functional.max_pool2d(x, 3, 1, 1)
        x = self.activation(self.b(torch.relu(self.a(x))) + x)
        x = torch.relu(self.c(torch.relu(self.library(x))))
        y = torch.sigmoid(self.down(x))
        return torch.softmax(self.activation(self.e(torch.relu(self.d(x))) + x), 1), y


@pytest.mark.parametrize("long", [False, True])
def test_a_shortcut_may_lie_otherwise(long: bool) -> None:
    torch.manual_seed(0)
    module, x = Shortcuts(long), torch.randn(2, 64, 9, 11)
    fast, result = fast_of(module, x, (64,), "slim")
    orders = [(g.last, len(g.turned)) for g in by_kernels(result)]
    assert orders == [(False, 0), (True, 2), (False, 1), (False, 1)]
    assert result.text.count("in_other_order<") >= 2
    with torch.no_grad():
        for got, truth in zip(fast(x), truth_of(module, x), strict=True):
            assert relative(got, truth) < CLASS
