"""Means and variances of a convolution's channels, taken in its kernel, patches, emulated."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.convolve import PATCHES
from test_convolutions import choice, fast_of, plan_of, relative
from test_models import written
from test_strip_statistics import (
    Normed,
    Statistics,
    Variance,
    check_not_finite,
    kinds_of,
    observed,
)
from test_strips import SM_90, error, families
from tests.emulator.module import emulated


def taken(
    module: nn.Module, x: torch.Tensor, tile: str = "features32", kind: str = "ieee"
) -> nn.Module:
    way = choice(kind, tile, PATCHES)
    _, result = written(module, [x], SM_90, convolutions=way)
    assert "kStatistics = true" in (result.text or "")
    assert kinds_of(result) == {kind}
    return fast_of(module, [x], way, SM_90)


@pytest.mark.parametrize("of", ["mean", "sum", "both", "groups", "image", "batch"])
def test_statistics_are_those_of_the_values(of: str) -> None:
    torch.manual_seed(0)
    module = Statistics(nn.ConvTranspose2d(3, 24, 3, 2, 1), of).eval()
    fast = taken(module, torch.randn(3, 3, 11, 29))
    for given in (torch.randn(3, 3, 11, 29), torch.randn(2, 3, 2, 98)):
        assert error(module, fast, given) < 1e-6


@pytest.mark.parametrize(
    "kind, tile, conv, size",
    [
        ("ieee", "features16", nn.ConvTranspose2d(3, 16, 3, (2, 1)), (9, 40)),
        ("ieee", "features16", nn.ConvTranspose3d(3, 13, 3, 2, 1, 1), (3, 6, 17)),
        ("tf32", "features32", nn.ConvTranspose2d(6, 32, 3, (2, 3)), (9, 35)),
        ("ieee", "features32", nn.Conv3d(4, 46, (1, 3, 2), (1, 2, 1), groups=2), (3, 9, 41)),
        ("tf32", "features64", nn.ConvTranspose3d(8, 64, 3, 2, 1, 1), (3, 4, 16)),
        ("ieee", "features64", nn.Conv2d(7, 70, 3, padding=1), (13, 68)),
        ("ieee", "features64", nn.Conv1d(9, 33, 5, padding=2), (211,)),
    ],
)
def test_every_tile_takes_them(
    kind: str, tile: str, conv: nn.Module, size: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    module = observed(conv, kind).eval()
    x = torch.randn(2, conv.in_channels, *size)
    assert error(module, taken(module, x, tile, kind), x) < (1e-3 if kind == "tf32" else 1e-6)


def test_statistics_alone_are_of_fp32() -> None:
    """What they normalise is computed in another way, with other roundings than TF32's."""
    x, conv = torch.randn(2, 3, 6, 9, 17), nn.ConvTranspose3d(3, 16, 3, 2, 1)
    way = choice("tf32", "features16", PATCHES)
    cases = ((Statistics(conv, "both"), "ieee"), (Normed(conv, nn.GroupNorm(4, 16)), "tf32"))
    for module, kind in cases:
        mode, _ = plan_of(module.eval(), x, way)
        assert mode.plan is not None
        kernels = (g.kernel for g in mode.plan.groups if g.family == "convolution")
        assert [k.kind for k in kernels if k is not None] == [kind]


def test_ordinary_ones_of_few_features_take_none() -> None:
    x = torch.randn(4, 3, 9, 37, 37)
    for tile, features in (("features16", 16), ("features32", 24)):
        module = Statistics(nn.Conv3d(3, features, 3), "image").eval()
        made = families(module, x, choice("ieee", tile, PATCHES))
        mode, _ = plan_of(module, x, choice("ieee", tile, PATCHES), SM_90)
        assert made[0] == "convolution" and mode.plan is not None
        assert bool(mode.plan.groups[0].reductions) == (features == 24)


@pytest.mark.parametrize("norm", [nn.GroupNorm(4, 24), nn.GroupNorm(1, 24)])
def test_values_are_stored_beside_them(norm: nn.Module) -> None:
    torch.manual_seed(0)
    module = Normed(nn.ConvTranspose2d(5, 24, 3, 2), norm).eval()
    fast = taken(module, torch.randn(3, 5, 9, 28))
    for given in (torch.randn(3, 5, 9, 28), torch.randn(2, 5, 12, 35)):
        assert error(module, fast, given) < 2e-6


def test_batch_statistics_are_followed() -> None:
    torch.manual_seed(0)
    module = Normed(nn.ConvTranspose3d(3, 16, 3, 2, 1), nn.BatchNorm3d(16)).train()
    x = torch.randn(3, 3, 4, 7, 9)
    fast = taken(copy.deepcopy(module), x, "features16").train()
    with torch.no_grad():
        for _ in range(2):
            assert introspect.fallback_reason(fast, [x]) is None
            ours, eager = fast(x), module(x)
            assert relative(ours, eager.double()) < 2e-6
    for name, buffer in module.named_buffers():
        assert relative(fast.get_buffer(name), buffer.double()) < 2e-6, name


@pytest.mark.parametrize("origin", [1e3, -1e4])
def test_an_origin_far_away_does_not_cancel(origin: float) -> None:
    torch.manual_seed(0)
    conv = nn.ConvTranspose2d(4, 24, 3, 2, padding=1)
    module = nn.Sequential(conv, nn.Identity(), Variance()).eval()
    x = torch.randn(2, 4, 30, 31)
    fast = taken(module, x)
    with torch.no_grad():
        conv.bias.fill_(origin)
        assert introspect.fallback_reason(fast, [x]) is None
        ours, eager = fast(x), module(x)
        wanted = module.double()(x.double())
        ours, eager = relative(ours, wanted), relative(eager, wanted)
    assert ours < max(2 * eager, 1e-6)


def test_of_equal_values_they_are_exact() -> None:
    module = Statistics(nn.Conv3d(4, 24, 3, padding=1), "both").eval()
    with torch.no_grad():
        module.conv.weight.zero_()
    x = torch.randn(2, 4, 3, 17, 31)
    fast = taken(module, x)
    with torch.no_grad():
        value = torch.sin(module.conv(x))[:, :, 0, 0, 0] + 0.25
        assert introspect.fallback_reason(fast, [x]) is None
        assert torch.equal(fast(x), value)


def test_what_is_not_finite_is_where_eager_has_it() -> None:
    torch.manual_seed(0)
    conv = nn.ConvTranspose2d(4, 24, 3, 2, padding=1)
    module = nn.Sequential(conv, nn.Softplus(), nn.AdaptiveAvgPool2d(1)).eval()
    x = torch.randn(3, 4, 15, 21)
    check_not_finite(taken(module, x), module, x)


# a line of a kernel, and what stands there instead
FAULTS = {
    "places outside count": ("at.h < l.images.made_high &&", ""),
    "a lane's places are left out": (
        "apart = 1; apart < 4; apart *= 2",
        "apart = 1; apart < 2; apart *= 2",
    ),
    "phases are forgotten": ("kOnce ? more : sum(feature) + more;", "more;"),
    "warps are left out": ("apart < kSharers; apart *= 2", "apart < 2; apart *= 2"),
    "origins are taken for the same": ("moved = mine.origin(in_warp) - origin;", "moved = 0.0f;"),
    "boxes write the same place": ("+ tile.box * l.splits", ""),
    "what shares phases writes the same place": ("l.splits + tile.split;", "l.splits;"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "phases are forgotten":  # of a block that has all
        monkeypatch.setenv("EMULATOR_PROCESSORS", "2")
    torch.manual_seed(0)
    module = Statistics(nn.ConvTranspose2d(5, 24, 3, 2, padding=1), "both").eval()
    x = torch.randn(2, 5, 21, 61)
    _, result = written(module, [x], SM_90, convolutions=choice("ieee", "features32", PATCHES))
    old, new = FAULTS[fault]
    text = result.text or ""
    assert old in text
    fast = pipeline.bind_for_class(emulated(text.replace(old, new)), module)
    assert not error(module, fast, x) < 1e-6
