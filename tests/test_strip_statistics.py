"""Means and variances of a convolution's channels, taken in its kernel, strips, on the emulator."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.convolve import IMPLICIT, STRIPS
from refold.plan.convolution import ConvolutionKernel
from test_convolutions import choice, fast_of, plan_of, relative
from test_models import written
from test_strips import SM_90, error, families
from tests.emulator.module import emulated

CHANNELS = 24


class Statistics(nn.Module):
    """What is said of each channel of an image, of groups of them, of all images."""

    def __init__(self, conv: nn.Module, of: str) -> None:
        super().__init__()
        self.conv, self.of = conv, of

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(self.conv(x)) + 0.25
        places = tuple(range(2, y.dim()))
        if self.of == "mean":
            return y.mean(places)
        if self.of == "sum":
            return y.sum(places)
        if self.of == "both":
            return y.mean(places) + y.var(places)
        if self.of == "groups":
            grouped = y.unflatten(1, (4, -1)).flatten(2)
            return grouped.mean(-1) * 3 + grouped.var(-1, correction=0)
        if self.of == "image":
            return y.flatten(1).var(1) + y.flatten(1).mean(1)
        every = (0, *places)
        return y.mean(every) + 2 * y.var(every)  # "batch"


class Variance(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.var((2, 3))


def taken(module: nn.Module, x: torch.Tensor, tile: str = "slim", kind: str = "ieee") -> nn.Module:
    way = choice(kind, tile, STRIPS)
    _, result = written(module, [x], SM_90, convolutions=way)
    assert "kStatistics = true" in (result.text or "")
    assert kinds_of(result) == {kind}
    return fast_of(module, [x], way, SM_90)


def kinds_of(result: pipeline.Result) -> set[str]:
    """The classes of accuracy of the kernels of convolutions."""
    plans = (m.plan for m in result.modes if m.plan is not None)
    kernels = (g.kernel for p in plans for g in p.groups)
    return {k.kind for k in kernels if isinstance(k, ConvolutionKernel)}


def observed(conv: nn.Module, kind: str, of: str = "both") -> nn.Module:
    """A module whose statistics are taken in a class of accuracy: in TF32 beside what is stored,
    since by themselves they are of fp32."""
    if kind == "tf32":
        return Normed(conv, nn.GroupNorm(1, int(conv.out_channels)))
    return Statistics(conv, of)


class Instance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(5, CHANNELS, 3), nn.InstanceNorm2d(CHANNELS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(x))


def test_kernels_of_rows_keep_what_they_read_once() -> None:
    slim, x = choice("ieee", "slim", STRIPS), torch.randn(3, 5, 66, 130)
    assert families(Instance().eval(), x, slim) == ["convolution", "rows"]
    long = torch.randn(1, 5, 260, 258)  # longer than they hold
    assert "rows" not in families(Instance().eval(), long, slim)


@pytest.mark.parametrize("tile", ["joined", "implicit"])
def test_other_kernels_take_none(tile: str) -> None:
    module, x = Statistics(nn.Conv2d(5, CHANNELS, 3), "both").eval(), torch.randn(4, 5, 30, 30)
    way = choice("ieee", "slim", IMPLICIT) if tile == "implicit" else choice("ieee", tile, STRIPS)
    assert families(module, x, way) == ["convolution", "rows"]


def test_statistics_of_some_places_are_others() -> None:
    class Rows(Statistics):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(self.conv(x))
            return y.mean(-1) + y.var((1, 3))[:, None]

    x = torch.randn(3, 5, 20, 130)
    module = Rows(nn.Conv2d(5, CHANNELS, 3), "").eval()
    assert families(module, x, choice("ieee", "slim", STRIPS))[0] == "convolution"
    mode, _ = plan_of(module, x, choice("ieee", "slim", STRIPS), SM_90)
    assert mode.plan is not None and not mode.plan.groups[0].reductions


def test_statistics_of_what_these_make_leave_them_where_they_are() -> None:
    """The mean of normalised values is of no convolution's values: its kernel does not have it."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(5, CHANNELS, 3), nn.GroupNorm(4, CHANNELS)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.norm(torch.sin(self.conv(x)))).mean((1, 2, 3))

    x = torch.randn(3, 5, 20, 130)
    mode, _ = plan_of(Mean().eval(), x, choice("ieee", "slim", STRIPS), SM_90)
    assert mode.plan is not None
    taken = [n.op for n in mode.plan.groups[0].reductions]
    assert taken == ["mean", "var"]


@pytest.mark.parametrize("of", ["mean", "sum", "both", "groups", "image", "batch"])
def test_statistics_are_those_of_the_values(of: str) -> None:
    torch.manual_seed(0)
    module = Statistics(nn.Conv2d(5, CHANNELS, 3, padding=1), of).eval()
    fast = taken(module, torch.randn(3, 5, 9, 133))
    for given in (torch.randn(3, 5, 9, 133), torch.randn(2, 5, 6, 45)):
        assert error(module, fast, given) < 1e-6


@pytest.mark.parametrize(
    "kind, tile, conv, size",
    [
        ("tf32", "slim", nn.Conv2d(8, 64, 3), (11, 130)),
        ("tf32", "broad", nn.Conv2d(8, 128, 3), (9, 66)),
        ("ieee", "broad", nn.Conv2d(3, 90, 3), (7, 37)),
        ("ieee", "slim", nn.ConvTranspose2d(4, 20, 3), (6, 41)),
        ("ieee", "slim", nn.Conv3d(4, 33, 3, padding=1), (3, 4, 35)),
        ("ieee", "slim", nn.ConvTranspose2d(4, 20, 3, stride=(2, 1)), (5, 41)),
        ("ieee", "slim", nn.Conv2d(8, 48, 3, groups=2), (8, 50)),
        ("ieee", "slim", nn.Conv2d(4, 70, (1, 5)), (3, 140)),
    ],
)
def test_every_tile_takes_them(
    kind: str, tile: str, conv: nn.Module, size: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    module = observed(conv, kind).eval()
    x = torch.randn(2, conv.in_channels, *size)
    assert error(module, taken(module, x, tile, kind), x) < (1e-3 if kind == "tf32" else 1e-6)


class Normed(nn.Module):
    def __init__(self, conv: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(torch.relu(self.conv(x))))


@pytest.mark.parametrize("norm", [nn.GroupNorm(4, CHANNELS), nn.GroupNorm(1, CHANNELS)])
def test_values_are_stored_beside_them(norm: nn.Module) -> None:
    torch.manual_seed(0)
    module = Normed(nn.Conv2d(5, CHANNELS, 3), norm).eval()
    fast = taken(module, torch.randn(3, 5, 9, 128))
    for given in (torch.randn(3, 5, 9, 128), torch.randn(2, 5, 12, 69)):
        assert error(module, fast, given) < 2e-6


def test_batch_statistics_are_followed() -> None:
    torch.manual_seed(0)
    module = Normed(nn.Conv2d(5, CHANNELS, 3), nn.BatchNorm2d(CHANNELS)).train()
    x = torch.randn(3, 5, 9, 128)
    fast = taken(copy.deepcopy(module), x).train()
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
    conv = nn.Conv2d(4, CHANNELS, 3, padding=1)
    module = nn.Sequential(conv, nn.Identity(), Variance()).eval()
    x = torch.randn(2, 4, 60, 62)
    fast = taken(module, x)
    with torch.no_grad():
        conv.bias.fill_(origin)
        assert introspect.fallback_reason(fast, [x]) is None
        ours, eager = fast(x), module(x)
        wanted = module.double()(x.double())
        ours, eager = relative(ours, wanted), relative(eager, wanted)
    assert ours < max(2 * eager, 1e-6)


def test_of_equal_values_they_are_exact() -> None:
    module = Statistics(nn.Conv2d(4, CHANNELS, 3), "both").eval()
    with torch.no_grad():
        module.conv.weight.zero_()
    x = torch.randn(2, 4, 37, 131)
    fast = taken(module, x)
    with torch.no_grad():
        value = torch.sin(module.conv(x))[:, :, 0, 0] + 0.25
        assert introspect.fallback_reason(fast, [x]) is None
        assert torch.equal(fast(x), value)


def check_not_finite(fast: nn.Module, module: nn.Module, x: torch.Tensor) -> None:
    """Results are NaN and infinite where eager's are, of images with such elements inside and at
    both ends."""
    for value in (torch.nan, torch.inf, -torch.inf):
        x[0, 1, 6, 9], x[1, 2, -1, -1], x[1, 2, 0, 0] = value, value, value
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            wanted, got = module(x), fast(x)
        assert torch.equal(wanted.isnan(), got.isnan())
        assert torch.equal(wanted.isinf(), got.isinf())


@pytest.mark.parametrize("of", ["mean", "both"])
def test_what_is_not_finite_is_where_eager_has_it(of: str) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(4, CHANNELS, 3, padding=1)
    module = nn.Sequential(conv, nn.Softplus(), nn.AdaptiveAvgPool2d(1)).eval()
    x = torch.randn(3, 4, 30, 41)
    check_not_finite(taken(module, x), module, x)


# a line of a kernel, and what stands there instead
FAULTS = {
    "ends of rows count": ("return place >= at.begin && place < at.end;", "return true;"),
    "a lane's places are left out": (
        "apart = 1; apart < 4; apart *= 2",
        "apart = 1; apart < 2; apart *= 2",
    ),
    "warpgroups write the same place": ("+ (S::kMI == 1 ? warpgroup : 0);", "+ 0;"),
    "rows of a strip are forgotten": (
        "of[h].squares += squares[h];",
        "of[h].squares = squares[h];",
    ),
    "what is beyond a warp is left out": ("i < count; i += 32", "i < 1; i += 32"),
    "strips write the same place": ("unit % launch.strips_of_image * S::kWriters", "0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATOR_PROCESSORS", "2")
    torch.manual_seed(0)
    module = Statistics(nn.Conv2d(5, CHANNELS, 3, padding=1), "both").eval()
    x = torch.randn(2, 5, 60, 141)
    _, result = written(module, [x], SM_90, convolutions=choice("ieee", "slim", STRIPS))
    old, new = FAULTS[fault]
    text = result.text or ""
    assert old in text
    fast = pipeline.bind_for_class(emulated(text.replace(old, new)), module)
    assert not error(module, fast, x) < 1e-6
