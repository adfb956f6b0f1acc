"""Passes over the channels of a convolution in its kernel, patches of images, on the emulator."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.convolve import PATCHES
from test_convolutions import choice, fast_of, relative
from test_models import written
from test_strips import SM_90, error, families
from tests.emulator.module import emulated

OF_CHANNELS = {
    "softmax": lambda y: torch.softmax(y, 1),
    "log_softmax": lambda y: torch.log_softmax(y, 1),
    "logsumexp": lambda y: torch.logsumexp(y, 1, keepdim=True),
    "min": lambda y: y.amin(1, keepdim=True),
    "sum": lambda y: y.sum(1),
    "centred": lambda y: y - y.amax(1, keepdim=True),
}
NUMBERS = ("logsumexp", "min", "sum")  # one a place


class Passes(nn.Module):
    """A convolution, something of each element, what its channels give, and what follows."""

    def __init__(self, conv: nn.Module, op: str, operand: bool = False) -> None:
        super().__init__()
        self.conv, self.op = conv, op
        each = conv.out_channels
        self.scale = nn.Parameter(torch.randn(each, *(1,) * (len(conv.kernel_size))))
        self.shift = nn.Parameter(torch.randn(())) if operand else None

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        made = OF_CHANNELS[self.op](torch.sin(self.conv(x)) * self.scale + 0.5)
        if self.op == "sum":  # nothing follows
            return made
        made = torch.tanh(made if y is None else made * y)
        return made if self.shift is None else made + self.shift


@pytest.mark.parametrize("kind", ["tf32", "ieee"])
@pytest.mark.parametrize(
    "tile, op, conv, size",
    [
        ("features16", "softmax", nn.Conv3d(3, 16, 3), (5, 7, 37)),
        ("features16", "logsumexp", nn.ConvTranspose3d(3, 16, 3, 2, 1), (3, 6, 17)),
        ("features16", "min", nn.Conv2d(4, 13, (3, 5), bias=False), (19, 70)),
        ("features32", "softmax", nn.ConvTranspose3d(5, 24, 3, 2, 1), (3, 5, 18)),
        ("features32", "log_softmax", nn.ConvTranspose2d(6, 32, 3, (2, 3)), (9, 35)),
        ("features32", "sum", nn.Conv3d(4, 31, (1, 3, 2), (1, 2, 1)), (3, 9, 41)),
        ("features32", "centred", nn.Conv2d(9, 20, 3, dilation=2), (21, 36)),
        ("features64", "softmax", nn.ConvTranspose3d(8, 64, 3, 2, 1, 1), (3, 4, 16)),
        ("features64", "logsumexp", nn.ConvTranspose2d(5, 40, 3, 2), (12, 33)),
        ("features64", "min", nn.ConvTranspose3d(4, 64, 2, 2), (2, 5, 19)),
        ("features64", "log_softmax", nn.Conv2d(7, 50, 3, padding=1), (13, 68)),
        ("features64", "sum", nn.Conv2d(7, 64, 3, 2), (13, 41)),
    ],
)
def test_channels_are_passed_over_in_the_kernel(
    kind: str, tile: str, op: str, conv: nn.Module, size: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    module = Passes(conv, op).eval()
    x = torch.randn(40, conv.in_channels, *size)  # enough places for a kernel of channels, too
    way = choice(kind, tile, PATCHES)
    assert families(module, x, way) == ["convolution"]
    fast = fast_of(module, [x], way, SM_90)
    for given in (x[:2], torch.randn(3, *x.shape[1:])):
        assert error(module, fast, given) < (1e-3 if kind == "tf32" else 6e-7)


@pytest.mark.parametrize("shape", [(30, 1, 6, 66), (6, 66), (30, 1, 1, 1)])
@pytest.mark.parametrize("op", ["logsumexp", "softmax"])
def test_operands_follow(op: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = Passes(nn.ConvTranspose2d(5, 24, 2, 2), op, operand=True).eval()
    x, y = torch.randn(30, 5, 3, 33), torch.randn(shape)
    fast = fast_of(module, [x, y], choice("ieee", "features32", PATCHES), SM_90)
    assert error(module, fast, x[:3], y[:3] if len(y) == 30 else y) < 6e-7


def test_operands_of_the_whole_result_come_before() -> None:
    class Added(Passes):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.conv(x) + y, 1) * y

    torch.manual_seed(0)
    module = Added(nn.ConvTranspose2d(5, 20, 3, 2), "softmax").eval()
    x, y = torch.randn(20, 5, 7, 21), torch.randn(20, 20, 15, 43)
    way = choice("ieee", "features32", PATCHES)
    fast = fast_of(module, [x, y], way, SM_90)
    assert error(module, fast, x[:2], y[:2]) < 6e-7


@pytest.mark.parametrize("op", OF_CHANNELS)
def test_what_is_not_finite_is_where_channels_have_it(op: str) -> None:
    torch.manual_seed(0)
    module = Passes(nn.ConvTranspose2d(4, 40, 3, 2, 1), op).eval()
    x = torch.randn(20, 4, 9, 41)
    fast = fast_of(module, [x], choice("tf32", "features64", PATCHES), SM_90)
    x = x[:2]
    for value in (torch.nan, torch.inf, -torch.inf):
        x[0, 1, 6, 9], x[1, 2, 0, 40] = value, value
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            wanted, got = module(x), fast(x)
        assert torch.equal(wanted.isnan(), got.isnan())
        assert relative(got.nan_to_num(), wanted.nan_to_num().double()) < 1e-3


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
@pytest.mark.parametrize("op", ["softmax", "logsumexp", "log_softmax"])
def test_infinite_values_are_passed_over(op: str, value: float) -> None:
    class Plain(Passes):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return OF_CHANNELS[self.op](self.conv(x) + self.scale)

    torch.manual_seed(0)
    module = Plain(nn.Conv2d(4, 16, 3), op).eval()
    x = torch.randn(20, 4, 9, 41)
    fast = fast_of(module, [x], choice("ieee", "features16", PATCHES), SM_90)
    with torch.no_grad():
        for channels in ([3], list(range(16))):
            fast.scale[channels] = value
            assert introspect.fallback_reason(fast, [x]) is None
            wanted, got = module(x), fast(x)
            assert torch.equal(wanted.isnan(), got.isnan())
            assert torch.equal(wanted.isinf(), got.isinf())
            assert torch.allclose(wanted, got, 1e-5, 1e-6, equal_nan=True)


def test_other_reductions_have_a_kernel_of_their_own() -> None:
    x = torch.randn(40, 4, 19, 66)
    slim, broad = (choice("ieee", f"features{n}", PATCHES) for n in (32, 64))
    more = nn.Conv2d(4, 40, 3)
    assert families(Passes(more, "softmax").eval(), x, slim) == ["convolution", "channels"]
    assert families(Passes(more, "softmax").eval(), x, broad) == ["convolution"]
    grouped = nn.Conv2d(4, 40, 3, groups=2)
    assert families(Passes(grouped, "softmax").eval(), x, broad)[1:] != []


def test_a_value_that_others_read_is_stored() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 24, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = torch.sin(self.conv(x))
            return torch.softmax(y, 1), y

    x, way = torch.randn(40, 4, 19, 66), choice("ieee", "features32", PATCHES)
    assert families(Both().eval(), x, way) == ["convolution", "channels"]


def test_what_follows_reads_what_passes_have_found() -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.by = nn.Conv2d(4, 24, 3), nn.Parameter(torch.randn(24, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(self.conv(x))
            size = torch.sqrt((y * y).sum(1, keepdim=True) + 0.1)
            return y / size * self.by + torch.tanh(size)

    torch.manual_seed(0)
    x, way = torch.randn(40, 4, 9, 66), choice("ieee", "features32", PATCHES)
    module = Norm().eval()
    assert families(module, x, way) == ["convolution"]
    assert error(module, fast_of(module, [x], way, SM_90), x[:3]) < 6e-7


# a line of a kernel, and what stands there instead
FAULTS = {
    "features that there are not count": (
        "|| feature0 + 16 * mi + 8 * half < W::kFeatures",
        "|| true",
    ),
    "half of the places are exchanged the wrong way": (
        "one_of(upper, of[i], of[i + Left])",
        "one_of(upper, of[i + Left], of[i])",
    ),
    "a warp is left out": ("w < S::kWarps; w++)", "w + 1 < S::kWarps; w++)"),
    "a place has its neighbour's": (
        "place_of(lane / 4)) = of[0];",
        "place_of(lane / 4) ^ 1) = of[0];",
    ),
    "phases have the same words": ("pass * kJoined + phase", "pass * kJoined"),
    "warps do not wait for each other": (
        "else named_barrier_sync(kChannelsBarrier",
        "else if (false) named_barrier_sync(kChannelsBarrier",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str) -> None:
    torch.manual_seed(0)
    module = Passes(nn.ConvTranspose2d(5, 60, 3, 2, 1), "softmax").eval()
    x = torch.randn(30, 5, 7, 21)
    _, result = written(module, [x], SM_90, convolutions=choice("ieee", "features64", PATCHES))
    old, new = FAULTS[fault]
    text = result.text or ""
    assert old in text
    fast = pipeline.bind_for_class(emulated(text.replace(old, new)), module)
    try:
        assert not error(module, fast, x[:2]) < 6e-7
    except RuntimeError:  # the emulator's own checks
        return
