"""Reductions over channels of a convolution, in its kernel: strips of rows, emulated."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.convolve import IMPLICIT, STRIPS
from test_convolutions import choice, fast_of, relative
from test_models import written
from test_strips import SM_90, error, families
from tests.emulator.module import emulated

OF_CHANNELS = {
    "min": lambda y: y.amin(1, keepdim=True),
    "max": lambda y: y.max(1, keepdim=True).values,
    "sum": lambda y: y.sum(1),
    "mean": lambda y: y.mean(1, keepdim=True),
}


class Reduced(nn.Module):
    """A convolution, something of each element, a reduction of its channels, and of its results."""

    def __init__(self, conv: nn.Module, op: str, operand: bool = False) -> None:
        super().__init__()
        self.conv, self.op = conv, op
        self.scale = nn.Parameter(torch.randn(())) if operand else None

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        made = OF_CHANNELS[self.op](torch.sin(self.conv(x)) - 0.5)
        if self.op == "sum":  # nothing follows
            return made
        made = torch.tanh(made if y is None else made * y)
        return made if self.scale is None else made + self.scale


@pytest.mark.parametrize("kind", ["tf32", "ieee"])
@pytest.mark.parametrize(
    "tile, op, conv, size",
    [
        ("slim", "min", nn.Conv2d(5, 64, 3, padding=1), (6, 133)),
        ("slim", "max", nn.ConvTranspose2d(4, 20, 3), (5, 40)),
        ("slim", "sum", nn.Conv2d(6, 40, (2, 4), bias=False), (9, 131)),
        ("broad", "min", nn.Conv2d(5, 128, 3), (7, 135)),
        ("broad", "mean", nn.Conv2d(8, 90, 3), (5, 42)),
        ("slim", "mean", nn.Conv3d(4, 33, 3, padding=1), (3, 4, 35)),
        ("slim", "max", nn.ConvTranspose2d(5, 24, 3, stride=(2, 1)), (4, 33)),
    ],
)
def test_channels_are_reduced_in_the_kernel(
    kind: str, tile: str, op: str, conv: nn.Module, size: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    module = Reduced(conv, op).eval()
    x = torch.randn(40, conv.in_channels, *size)  # enough places for a kernel of channels, too
    way = choice(kind, tile, STRIPS)
    assert families(module, x, way) == ["convolution"]
    fast = fast_of(module, [x], way, SM_90)
    for given in (x[:2], torch.randn(3, *x.shape[1:])):
        assert error(module, fast, given) < (1e-3 if kind == "tf32" else 4e-7)


@pytest.mark.parametrize("shape", [(30, 1, 6, 33), (6, 33), (30, 1, 1, 1)])
def test_operands_of_places_follow(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = Reduced(nn.Conv2d(5, 64, 3), "min", operand=True).eval()
    x, y = torch.randn(30, 5, 8, 35), torch.randn(shape)
    fast = fast_of(module, [x, y], choice("ieee", "slim", STRIPS), SM_90)
    assert error(module, fast, x[:3], y[:3] if len(y) == 30 else y) < 4e-7


@pytest.mark.parametrize("op", OF_CHANNELS)
def test_what_is_not_finite_is_where_channels_have_it(op: str) -> None:
    torch.manual_seed(0)
    module = Reduced(nn.Conv2d(4, 20, 3, padding=1), op).eval()
    x = torch.randn(20, 4, 9, 41)
    fast = fast_of(module, [x], choice("tf32", "slim", STRIPS), SM_90)
    x = x[:2]
    for value in (torch.nan, torch.inf, -torch.inf):
        x[0, 1, 6, 9], x[1, 2, 0, 40] = value, value
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            wanted, got = module(x), fast(x)
        assert torch.equal(wanted.isnan(), got.isnan())
        assert relative(got.nan_to_num(), wanted.nan_to_num().double()) < 1e-3


def test_other_reductions_have_a_kernel_of_their_own() -> None:
    x = torch.randn(2, 4, 66, 66)
    slim, broad = (choice("ieee", tile, STRIPS) for tile in ("slim", "broad"))
    more = nn.Conv2d(4, 70, 3)
    assert families(Reduced(more, "min").eval(), x, slim)[0:2] == ["convolution", "channels"]
    assert families(Reduced(more, "min").eval(), x, broad) == ["convolution"]
    implicit = choice("ieee", "slim", IMPLICIT)
    few = nn.Conv2d(4, 20, 3)
    assert families(Reduced(few, "max").eval(), x, implicit)[1:] != []
    assert families(Reduced(nn.Conv2d(4, 40, 3, groups=2), "max").eval(), x, slim)[1:] != []
    phases = nn.ConvTranspose2d(4, 20, 3, stride=2)
    assert families(Reduced(phases, "max").eval(), x, slim)[1:] != []


# a line of a kernel, and what stands there instead
FAULTS = {
    "features that there are not count": ("acc[i] = M::identity().w[0];", "acc[i] = -9.0f;"),
    "half of the places are exchanged the wrong way": (
        "one_of(upper, of[i], of[i + Left])",
        "one_of(upper, of[i + Left], of[i])",
    ),
    "a warp is left out": ("w < kWarps; w++) {", "w + 1 < kWarps; w++) {"),
    "warps do not wait for each other": (
        "named_barrier_sync(kReductionBarrier + (S::kMI == 1 ? warpgroup : 0), 32 * kWarps);",
        "",
    ),
    "both warpgroups have the same barrier": (
        "named_barrier_sync(kReductionBarrier + (S::kMI == 1 ? warpgroup : 0), 32 * kWarps);",
        "named_barrier_sync(kReductionBarrier, 64 * kWarps);",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATOR_PROCESSORS", "2")
    torch.manual_seed(0)
    module = Reduced(nn.Conv2d(5, 60, 3, padding=1), "min").eval()
    x = torch.randn(9, 5, 27, 41)
    way = choice("ieee", "slim", STRIPS)
    assert families(module, x, way) == ["convolution"]
    _, result = written(module, [x], SM_90, convolutions=way)
    old, new = FAULTS[fault]
    text = result.text or ""
    assert old in text
    fast = pipeline.bind_for_class(emulated(text.replace(old, new)), module)
    try:
        assert not error(module, fast, x[:3]) < 4e-7
    except RuntimeError:  # the emulator's own checks
        return
