"""Convolutions by our kernels at random, and with a line of a kernel changed.

Each goes through the dispatch of the planner, and runs on the emulator.
"""

from __future__ import annotations

import copy
from collections import Counter
from math import prod
from typing import Any

import pytest
import torch
from torch import nn

from agree import check_values
from refold import introspect, pipeline
from refold.convolve import DIRECT, IMPLICIT, ON_CPU, PATCHES, STRIPS, Choice, takes
from refold.derive import Options, derive
from refold.emit.module import Mode
from refold.ir.ops import CONVOLUTIONS
from refold.plan import Group
from refold.plan.convolution import of_node, unsupported
from refold.schedule import Kernels
from test_convolutions import (
    ALL,
    TARGET,
    TARGETS,
    choice,
    fast_of,
    keeps_the_bits_of_columns,
    relative,
    truth_of,
)
from test_models import written
from tests.emulator.module import emulated


def drawn(random: torch.Generator, strips: bool = False) -> tuple[nn.Module, torch.Tensor]:
    """A convolution of any kind, and images for it that it may take. strips: of those that strips
    of rows may compute."""

    def one(*of: int) -> int:
        return of[int(torch.randint(len(of), (), generator=random))]

    while True:
        places, groups = one(1, 2, 2, 2, 3), one(1, 1, 1, 2, 3, 8)
        each = one(8, 16, 24, 72) if strips else one(2, 3, 5, 8, 17, 32)
        channels, features = groups * each, groups * one(7, 16, 24, 40, 70)
        transposed = strips and places < 3 and one(0, 0, 1) == 1
        kernel, strides, paddings, dilations = (
            tuple(one(*of) for _ in range(places))
            for of in (
                (1, 2, 3, 3, 5),
                (1, 2, 2, 3) if transposed else (1,) if strips else (1, 1, 2, 3),
                (0, 1, 2),
                (1, 1, 2, 3),
            )
        )
        sizes = tuple(one(*{1: (1, 40, 130), 2: (3, 8, 13), 3: (2, 4, 6)}[places]) for _ in kernel)
        name = f"Conv{'Transpose' if transposed else ''}{places}d"
        facts: dict[str, Any] = {"groups": groups, "dilation": dilations, "bias": one(0, 1) == 1}
        if transposed:
            facts["groups"], channels = one(1, 1, 1, groups), groups * each
            pairs = zip(strides, dilations, strict=True)
            facts["output_padding"] = tuple(one(0, max(s, d) - 1) for s, d in pairs)
        module = getattr(nn, name)(channels, features, kernel, strides, paddings, **facts)
        x = torch.randn((one(1, 2, 5), channels, *sizes), generator=random)
        x *= (1.0, 1e-30, 1e4, 1e6)[one(0, 1, 2, 3)]
        if one(0, 0, 0, 1):
            x.view(-1)[one(0, x.numel() // 2)] = torch.inf
        try:
            made = module(x)
        except RuntimeError:
            continue  # larger than the image
        if made.numel() and prod(module.weight.shape[1:]) * made.numel() < 2e6:
            return module, x


class Through(nn.Module):
    """Convolutions side by side, each with something that follows."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.relu(m(x)) * 2 for m, x in zip(self.parts, images, strict=True))


SHARE = Counter[str]()


@pytest.mark.parametrize("seed", range(38))
def test_random_convolutions(seed: int) -> None:
    """Eight at a time. The share that is PyTorch's is printed, with reasons (-s)."""
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    pairs = [drawn(random, seed % 3 == 2) for _ in range(8)]
    module, images = Through([m for m, _ in pairs]).eval(), [x for _, x in pairs]
    kind, kernels = (("ieee", IMPLICIT), ("tf32", IMPLICIT), ("tf32", STRIPS))[seed % 3]
    tiles = ("slim", "broad", "joined") if kernels is STRIPS else ("slim", "broad")
    how = choice(kind, tiles[seed // 3 % len(tiles)], kernels)
    mode = plan_of_all(module, images, how)
    for step in mode.plan.steps:
        nodes = step.nodes if isinstance(step, Group) else (step.node,)
        for node in (n for n in nodes if n.op in CONVOLUTIONS):
            own = step.kernel.schedule.kernels.name if isinstance(step, Group) else ""
            SHARE[own or unsupported(node) or "what only patches take"] += 1
            c = of_node(node)
            assert isinstance(step, Group) is takes(how(c).schedule, c, kind)
            assert unsupported(node) is None or not isinstance(step, Group)
    target = "cuda:sm_90" if kernels is STRIPS else TARGET
    fast = fast_of(module, images, how, target)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        got, eager, truth = fast(*images), module(*images), truth_of(module, *images)
        for g, e, t in zip(got, eager, truth, strict=True):
            assert g.shape == e.shape and g.stride() == e.stride()
            check_as_accurate(g, e, t, kind)
    print(f"{SHARE.total()} convolutions: {dict(SHARE)}")


def check_as_accurate(
    got: torch.Tensor, eager: torch.Tensor, truth: torch.Tensor, kind: str
) -> None:
    """Of TF32 class with an error of ten bits of each product's operands."""
    known = truth.isfinite()
    scale = truth[known].abs().max().item() if known.any() else 0.0
    check_values(got, eager, truth, 2e-4 * scale if kind == "tf32" else 0.0)


def plan_of_all(module: nn.Module, images: list[torch.Tensor], convolutions: Choice) -> Mode:
    _, device = pipeline.target_for("cuda:sm_90", "ieee", convolutions)
    (found,) = derive(module, images, device, Options(accuracy=False))
    return found.mode


# --- rows that start anywhere, dark places, special values ----------------------------------------
Strips = tuple[str, nn.Module, nn.Module]
FORMS: dict[str, tuple[nn.Module, str]] = {
    "steps of 1": (nn.Conv2d(8, 20, (2, 3), bias=False), "slim"),
    "phases": (nn.ConvTranspose2d(8, 20, 3, 2, 1, bias=False), "slim"),
    "joined volumes": (nn.Conv3d(8, 20, (2, 2, 3), padding=(1, 0, 0), bias=False), "joined"),
}


def images_of(module: nn.Module, count: int, high: int, wide: int) -> torch.Tensor:
    """Of volumes three planes."""
    deep = (3,) if isinstance(module, nn.Conv3d) else ()
    return torch.randn(count, 8, *deep, high, wide)


@pytest.fixture(scope="module", params=[(k, f) for f in FORMS for k in ("ieee", "tf32")], ids=str)
def strips(request: pytest.FixtureRequest) -> Strips:
    """A class, a convolution, and its twin by strips of rows on two processors."""
    torch.manual_seed(0)
    kind, form = request.param
    original, tile = FORMS[form]
    module = copy.deepcopy(original).eval()
    x = images_of(module, 2, 5, 9)
    fast = fast_of(module, [x], choice(kind, tile, STRIPS), "cuda:sm_90")
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setenv("EMULATOR_PROCESSORS", "2")
        fast(x)  # a library asks once how many there are
    return kind, module, fast


@pytest.mark.parametrize("high", [4, 5])
@pytest.mark.parametrize("wide", [4, 5, 6, 7, 28, 61, 62, 66, 126, 127, 130])
def test_results_of_any_width(strips: Strips, wide: int, high: int) -> None:
    """Rows that start at every multiple of 4 bytes, of images whose places are a multiple of four,
    so that rows of all features start alike, or are not. Of five images two or three tiles."""
    kind, module, fast = strips
    torch.manual_seed(wide)
    x = images_of(module, 5 if wide in (28, 61, 62) else 2, high, wide + 2)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, truth = fast(x), truth_of(module, x)
    assert relative(got, truth) < (2e-7 if kind == "ieee" else 4e-4)


def test_a_dark_place_keeps_its_bits(strips: Strips) -> None:
    """A row has one scale where its places are alike, else each place has one."""
    kind, module, fast = strips
    larger = isinstance(module, nn.ConvTranspose2d)
    rows, columns = (5, 8) if larger else (2, 3)  # from, until: all dark
    torch.manual_seed(0)
    for dark in (1e-3, 1e-6, 1e-12, 1e-25, 0.0):
        x = images_of(module, 2, 7, 9)
        x[..., 2:, :5] *= dark  # what sees nothing but this is as dark
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            got, truth = fast(x), truth_of(module, x)
        for some in (got[..., :columns] - truth[..., :columns], got - truth):
            assert some.isfinite().all()
        there = ..., slice(rows, None), slice(columns)
        error = relative(got[there], truth[there]) if dark else 0.0
        assert error < (2.5e-7 if kind == "ieee" else 4e-4), dark


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_special_values_of_strips(strips: Strips, value: float) -> None:
    kind, module, fast = strips
    torch.manual_seed(1)
    x = images_of(module, 2, 6, 9)
    x[1, 3, ..., 2, 4] = value
    with torch.no_grad():
        got, truth = fast(x), truth_of(module, x)
    known = truth.isfinite()
    assert not known.all() and torch.equal(got.isnan(), truth.isnan())
    assert torch.equal(got[truth.isinf()].double(), truth[truth.isinf()])
    assert relative(got[known], truth[known]) < (2e-7 if kind == "ieee" else 4e-4)


# --- transposed ones, and those of few features ---------------------------------------------------
def drawn_of_all(
    random: torch.Generator, each: tuple[int, ...] = (1, 2, 3, 4, 5, 13, 29)
) -> tuple[nn.Module, torch.Tensor]:
    """A convolution of any kind, transposed ones too, and images for it. each: features of a
    group."""

    def one(*of: int) -> int:
        return of[int(torch.randint(len(of), (), generator=random))]

    while True:
        places, groups, transposed = one(1, 2, 2, 3), one(1, 1, 2, 5), one(0, 1) == 1
        channels, features = groups * one(1, 2, 5, 17), groups * one(*each)
        kernel, strides, paddings, dilations = (
            tuple(one(*of) for _ in range(places))
            for of in ((1, 2, 3, 5), (1, 1, 2, 3), (0, 1, 2), (1, 1, 2, 3))
        )
        sizes = tuple(
            one(*{1: (1, 40, 301), 2: (3, 8, 13, 35), 3: (2, 4, 6)}[places]) for _ in kernel
        )
        name = f"Conv{'Transpose' if transposed else ''}{places}d"
        facts: dict[str, Any] = {"groups": groups, "dilation": dilations, "bias": one(0, 1) == 1}
        if transposed:
            pairs = zip(strides, dilations, strict=True)
            facts["output_padding"] = tuple(one(0, max(s, d) - 1) for s, d in pairs)
        module = getattr(nn, name)(channels, features, kernel, strides, paddings, **facts)
        x = torch.randn((one(2, 5), channels, *sizes), generator=random)
        x *= (1.0, 1e-30, 1e4, 1e6)[one(0, 1, 2, 3)]
        if one(0, 0, 0, 1):
            x.view(-1)[one(0, x.numel() // 2)] = (torch.inf, torch.nan)[one(0, 1)]
        try:
            made = module(x)
        except RuntimeError:
            continue  # larger than the image
        if made.numel() and prod(module.weight.shape[1:]) * made.numel() < 2e6:
            return module, x


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("kernels", [PATCHES, DIRECT], ids=str)
def test_random_convolutions_of_all_forms(
    kernels: Kernels, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight at a time, with few processors or many, by which the phases of a tile are shared."""
    monkeypatch.setenv("EMULATOR_PROCESSORS", str((1, 132)[seed % 2]))
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    each = (8, 16, 33, 70) if kernels is PATCHES else (1, 1, 2, 3, 5, 8)
    pairs = [drawn_of_all(random, each) for _ in range(8)]
    module, images = Through([m for m, _ in pairs]).eval(), [x for _, x in pairs]
    kind, tile = ("ieee", "tf32")[seed % 2], list(kernels.tiles)[seed % len(kernels.tiles)]
    fast = fast_of(module, images, choice(kind, tile, kernels))
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        got, eager, truth = fast(*images), module(*images), truth_of(module, *images)
        for g, e, t in zip(got, eager, truth, strict=True):
            assert g.shape == e.shape and g.stride() == e.stride()
            check_as_accurate(g, e, t, kind if kernels is PATCHES else "ieee")


# --- on a CPU -------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(16))
def test_random_convolutions_on_the_cpu(seed: int) -> None:
    """Eight at a time, each by our kernels; again with another number of images."""
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    pairs = [drawn_of_all(random) for _ in range(8)]
    module, images = Through([m for m, _ in pairs]).eval(), [x for _, x in pairs]
    _, result = written(module, images, "cpu", convolutions=lambda convolution: ON_CPU)
    assert result.text.count("rf::convolution(body") == len(pairs)
    fast = pipeline.bind_for_class(result.text, module)
    more = [torch.cat([x, x, x[:1]]) for x in images]
    with torch.no_grad():
        for given in (images, more):
            assert introspect.fallback_reason(fast, given) is None
            got, eager, truth = fast(*given), module(*given), truth_of(module, *given)
            for g, e, t in zip(got, eager, truth, strict=True):
                assert g.shape == e.shape and g.stride() == e.stride()
                check_values(g, e, t)


# --- what threads wait for ------------------------------------------------------------------------
# a line of a kernel, and what stands there instead -> which kernel
FAULTS = {
    "a stage is read before it is there": (
        "__syncthreads();  // stage k is there for all",
        "__syncwarp();  //",
        "tf32",
    ),
    "kernels are read while they are copied": (
        "cp_async_wait<S::kStages - 2>();",
        "cp_async_wait<S::kStages - 1>();",
        "tf32",
    ),
    "a place has its neighbour's scale": (
        "unscale[16 * n + 8 * (i / 4) + i % 2]",
        "unscale[16 * n + 8 * (i / 4)]",
        "tf32",
    ),
    "a row is read before it is there": (
        "(before + seen) / Slots & 1);",
        "((before + seen) / Slots & 1) ^ 1);",
        "strips",
    ),
    "a row is written while it is read": (
        "mbarrier_wait(empty + kMbarrierBytes * slot,",
        "if (chunk < 0) mbarrier_wait(empty + kMbarrierBytes * slot,",
        "strips",
    ),
    "sums are promoted before they are there": (
        "wgmma_wait_group<left.index>();",
        "",
        "strips of slim tiles",
    ),
    "a row is released before it was read": (
        "if (S::kStoresLater) queue.release(min(tile_of(item + kStep).row, all), lane);",
        "if (S::kStoresLater) queue.release(min(tile_of(item + kStep).row + 2, all), lane);",
        "strips",
    ),
    "a patch is read before it is there": (
        "__syncthreads();  // it is there for all",
        "__syncwarp();  //",
        "patches",
    ),
    "a tap has another tap's scales": (
        "shared.unscale[slot][chunk] + Wide::at(tap) +",
        "shared.unscale[slot][chunk] +",
        "strips of slim tiles",
    ),
    "a phase has another phase's taps": ("return kFirst + i *", "return i *", "phases"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the emulator, with few processors, so that blocks go on to other strips. Without a fault:
    test_convolutions.py."""
    monkeypatch.setenv("EMULATOR_PROCESSORS", "2")
    torch.manual_seed(0)
    module, x = nn.Conv2d(40, 66, 3, padding=1).eval(), torch.randn(2, 40, 6, 7)
    old, new, kind = FAULTS[fault]
    if kind == "phases":
        module, kind = nn.ConvTranspose2d(40, 66, 3, 2, 1, (1, 0)).eval(), "strips of slim tiles"
    _, result = written(module, [x], TARGETS[kind], convolutions=choice(*ALL[kind]))
    text = result.text or ""
    assert old in text
    fast = pipeline.bind_for_class(emulated(text.replace(old, new)), module)
    try:
        kept = keeps_the_bits_of_columns(fast, module, kind)
    except RuntimeError:  # the emulator's own checks
        return
    assert not kept
