"""What strips of rows store: their ends, long bodies, and windows of their results, emulated."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from refold import introspect, pipeline
from refold.accuracy.samples import samples_of
from refold.capture import Example
from refold.convolve import IMPLICIT, STRIPS, Choice
from refold.plan.reference import run_plan
from refold.planner import plan_price
from test_convolutions import choice, fast_of, plan_of, relative, truth_of
from test_models import written
from tests.emulator.module import emulated

SM_90 = "cuda:sm_90"


class Pooled(nn.Module):
    """A convolution, something of each element and of each channel, and windows of the result."""

    def __init__(
        self,
        channels: int,
        features: int,
        window: tuple[int, int],
        largest: bool = True,
        transposed: bool = False,
        padding: int = 0,
    ) -> None:
        super().__init__()
        made = nn.ConvTranspose2d if transposed else nn.Conv2d
        self.conv = made(channels, features, 3, padding=padding)
        self.shift = nn.Parameter(torch.randn(features, 1, 1))
        self.pool = (nn.MaxPool2d if largest else nn.AvgPool2d)(window)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.pool(F.hardswish(self.conv(x)) - self.shift) * self.shift) + 0.5


def error(module: nn.Module, fast: nn.Module, *inputs: torch.Tensor) -> float:
    """Of the kernels' result, which no call of the original stands in for."""
    with torch.no_grad():
        assert introspect.fallback_reason(fast, list(inputs)) is None
        return relative(fast(*inputs), truth_of(module, *inputs))


def families(module: nn.Module, x: torch.Tensor, convolutions: Choice) -> list[str]:
    mode, _ = plan_of(module, x, convolutions, SM_90)
    assert mode.plan is not None
    return [s.family for s in mode.plan.steps if hasattr(s, "family")]


@pytest.mark.parametrize("kind", ["tf32", "ieee"])
@pytest.mark.parametrize(
    "tile, features, window, largest, size",
    [
        ("slim", 24, (2, 2), True, (13, 133)),
        ("slim", 64, (4, 4), False, (22, 138)),
        ("slim", 70, (3, 2), False, (12, 31)),
        ("slim", 20, (1, 4), True, (7, 262)),
        ("broad", 130, (2, 2), False, (9, 131)),
        ("broad", 40, (2, 4), True, (15, 40)),
    ],
)
def test_windows_of_a_result_are_one_kernel(
    kind: str,
    tile: str,
    features: int,
    window: tuple[int, int],
    largest: bool,
    size: tuple[int, int],
) -> None:
    torch.manual_seed(0)
    transposed = features == 24
    module = Pooled(5, features, window, largest, transposed, padding=1).eval()
    x = torch.randn(2, 5, *size)
    way = choice(kind, tile, STRIPS)
    assert families(module, x, way) == ["convolution"]
    fast = fast_of(module, [x], way, SM_90)
    for given in (x, torch.randn(3, 5, *size)):
        assert error(module, fast, given) < (1e-3 if kind == "tf32" else 4e-7)


@pytest.mark.parametrize("largest", [True, False])
def test_what_is_not_finite_is_where_windows_have_it(largest: bool) -> None:
    torch.manual_seed(0)
    module = Pooled(4, 20, (2, 2), largest, padding=1).eval()
    x = torch.randn(2, 4, 11, 21)
    fast = fast_of(module, [x], choice("tf32", "slim", STRIPS), SM_90)
    for value in (torch.nan, torch.inf, -torch.inf):
        x[0, 1, 6, 9], x[1, 2, 0, 20] = value, value
        with torch.no_grad():
            assert introspect.fallback_reason(fast, [x]) is None
            wanted, got = module(x), fast(x)
        assert torch.equal(wanted.isnan(), got.isnan())
        assert torch.equal(wanted.isinf(), got.isinf())
        assert relative(got.nan_to_num(), wanted.nan_to_num().double()) < 1e-3


@pytest.mark.parametrize(
    "why, pool",
    [
        ("windows overlap", nn.MaxPool2d(3, 2)),
        ("padded", nn.MaxPool2d(2, padding=1)),
        ("three along a row", nn.AvgPool2d((2, 3))),
        ("apart", nn.MaxPool2d(2, 2, dilation=2)),
        ("begins inside, ends outside", nn.MaxPool2d(2, ceil_mode=True)),
    ],
)
def test_other_windows_have_a_kernel_of_their_own(why: str, pool: nn.Module) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(4, 20, 3), nn.ReLU(), pool).eval()
    x = torch.randn(2, 4, 11, 22)
    way = choice("ieee", "slim", STRIPS)
    assert families(module, x, way) == ["convolution", "pooling"], why


def test_a_result_that_others_read_is_stored() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 20, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.conv(x).sigmoid()
            return y, F.max_pool2d(y, 2)

    module, x = Both().eval(), torch.randn(2, 4, 11, 22)
    way = choice("ieee", "slim", STRIPS)
    assert families(module, x, way) == ["convolution", "pooling"]
    implicit = choice("ieee", "slim", IMPLICIT)
    assert families(nn.Sequential(module.conv, nn.MaxPool2d(2)), x, implicit)[-1] == "pooling"


def test_a_plan_with_windows_runs_by_pytorch_alone() -> None:
    module, x = Pooled(4, 20, (2, 2)).eval(), torch.randn(2, 4, 11, 22)
    mode, device = plan_of(module, x, choice("ieee", "slim", STRIPS), SM_90)
    samples = samples_of(module, Example.of([x]), mode.captured, mode.captured.graph)
    sample = samples.get("the example")
    values = {(n.op, n["name"]): v for n, v in sample.leaves.items()}
    leaves = {n: values[n.op, n["name"]] for n in mode.plan.graph.nodes() if n.row.is_named}
    for got, truth in zip(run_plan(mode.plan, leaves, sample.sizes), sample.truth, strict=True):
        torch.testing.assert_close(got.double(), truth[0], rtol=1e-4, atol=1e-5)
    wide, _ = plan_of(module, torch.randn(2, 4, 44, 88), choice("ieee", "slim", STRIPS), SM_90)
    assert plan_price(wide.plan, device).seconds > plan_price(mode.plan, device).seconds


class Long(nn.Module):
    """More arithmetic of an element than a kernel unrolls; an operand of the result's shape."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, features, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.mish(self.conv(x))) + F.gelu(y)


class Short(Long):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x)) * y


@pytest.mark.parametrize(
    "made, kind", [(Long, "tf32"), (Long, "ieee"), (Short, "tf32"), (Short, "ieee")]
)
@pytest.mark.parametrize(
    "tile, features, size",
    [
        ("slim", 64, (5, 128)),  # 126 places: rows start at any multiple of 8 bytes
        ("slim", 20, (6, 130)),  # of 16
        ("slim", 70, (7, 135)),  # of 4; 5 x 133 places: no multiple of four
        ("slim", 24, (6, 137)),  # 4 x 135 places
        ("broad", 128, (6, 128)),
        ("broad", 140, (6, 137)),
        ("joined", 24, (6, 64)),
        ("joined", 64, (6, 30)),
        ("joined", 20, (6, 31)),
        # rows of seven tiles, stored by whole sectors of memory
        ("slim", 20, (4, 892)),  # they start at any multiple of 8 bytes
        ("slim", 70, (4, 893)),  # of 4
        ("broad", 140, (3, 895)),
    ],
)
def test_rows_of_any_start_and_end(
    made: type[Long], kind: str, tile: str, features: int, size: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    module = made(features).eval()
    x = torch.randn(3, 6, *size)
    y = torch.randn(3, features, size[0] - 2, size[1] - 2)
    fast = fast_of(module, [x, y], choice(kind, tile, STRIPS), SM_90)
    assert error(module, fast, x, y) < (1e-3 if kind == "tf32" else 4e-7)


class Enlarged(nn.Module):
    """A transposed convolution of two phases along a row, and an operand of its channels."""

    def __init__(self, conv: nn.ConvTranspose2d, long: bool) -> None:
        super().__init__()
        self.conv, self.long = conv, long
        self.scale = nn.Parameter(torch.randn(conv.out_channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return torch.tanh(F.mish(y) * self.scale) + F.gelu(y) if self.long else y * self.scale


@pytest.mark.parametrize("kind", ["tf32", "ieee"])
@pytest.mark.parametrize(
    "conv, wide, long",
    [
        (nn.ConvTranspose2d(5, 24, 4, stride=2), 64, True),  # 65 places, two rows of four
        (nn.ConvTranspose2d(5, 70, 4, stride=2, padding=1, output_padding=1), 64, False),  # odd
        (nn.ConvTranspose2d(8, 64, 4, stride=2, padding=1), 100, True),  # two strips
        (nn.ConvTranspose2d(8, 40, 2, stride=2), 35, False),  # of one warpgroup alone
    ],
)
def test_phases_of_narrower_tiles(
    kind: str, conv: nn.ConvTranspose2d, wide: int, long: bool
) -> None:
    torch.manual_seed(0)
    module = Enlarged(conv, long).eval()
    x, way = torch.randn(2, conv.in_channels, 3, wide), choice(kind, "paired", STRIPS)
    assert families(module, x, way) == ["convolution"]
    fast = fast_of(module, [x], way, SM_90)
    assert error(module, fast, x) < (1e-3 if kind == "tf32" else 4e-7)


# a line of a kernel, and what stands there instead
FAULTS = {
    "a window's rows are not joined": ("of[i] = joined_in_window<Body>(of[i], v);", "of[i] = v;"),
    "the last windows of a row are missing": (
        "col < Body::kPooledWide",
        "col + 1 < Body::kPooledWide",
    ),
    "windows of another row": (
        "high * Body::kPooledWide + min",
        "max(high - 1, 0) * Body::kPooledWide + min",
    ),
    "features are taken up before all are laid down": (
        "__syncwarp();\n#pragma unroll\n      for (int i = 0; i < 8 * kCols / 32; i++)",
        "#pragma unroll\n      for (int i = 0; i < 8 * kCols / 32; i++)",
    ),
    "the mean is a sum": ("window * kShare", "window"),
    "a row is released before it was read": (
        "== row0 + kHigh ? next : min(row + 1, next), all), lane);",
        "== row0 + kHigh ? next : row + 2, all), lane);",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATOR_PROCESSORS", "2")
    torch.manual_seed(0)
    module = Pooled(5, 40, (2, 2), largest=False, padding=1).eval()
    x = torch.randn(3, 5, 27, 41)
    way = choice("ieee", "slim", STRIPS)
    _, result = written(module, [x], SM_90, convolutions=way)
    old, new = FAULTS[fault]
    text = result.text or ""
    assert old in text
    fast = pipeline.bind_for_class(emulated(text.replace(old, new)), module)
    try:
        assert not error(module, fast, x) < 4e-7
    except RuntimeError:  # the emulator's own checks
        return


@pytest.mark.parametrize("kind", ["tf32", "ieee"])
@pytest.mark.parametrize(
    "channels, tile, features, kernel",
    [
        (8, "slim", 20, (3, 3)),  # two taps a step, the last by itself
        (7, "broad", 70, (2, 4)),
        (3, "joined", 16, (1, 2)),
        (40, "slim", 20, (3, 3)),
    ],
)
def test_dark_places_beside_bright_ones_keep_their_bits(
    kind: str, channels: int, tile: str, features: int, kernel: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, features, kernel, bias=False)
    module = nn.Sequential(conv, nn.ReLU()).eval()
    x = torch.randn(4, channels, 6, 28)
    x[..., 14:] *= 2.0**-40
    fast = fast_of(module, [x], choice(kind, tile, STRIPS), SM_90)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, truth = fast(x)[..., 14:], truth_of(module, x)[..., 14:]
    assert relative(got, truth) < (1e-3 if kind == "tf32" else 4e-7)


@pytest.mark.parametrize("largest", [None, True])
def test_kernels_that_fill_two_thirds_of_shared_memory(largest: bool | None) -> None:
    torch.manual_seed(0)
    pools = [] if largest is None else [nn.MaxPool2d(2)]
    module = nn.Sequential(nn.Conv2d(64, 128, 3), nn.ReLU(), *pools).eval()
    x = torch.randn(1, 64, 9, 20)
    fast = fast_of(module, [x], choice("tf32", "broad", STRIPS), SM_90)
    assert error(module, fast, x) < 1e-3


@pytest.mark.parametrize("size, padding", [((5, 40), 1), ((4, 67), 0), ((3, 9), 1)])
def test_two_phases_whose_rows_start_anywhere(size: tuple[int, int], padding: int) -> None:
    torch.manual_seed(0)
    made = nn.ConvTranspose2d(8, 24, 4, stride=2, padding=padding, output_padding=1)
    shift = nn.Parameter(torch.randn(24, 1, 1))

    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.made, self.shift = made, shift

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.made(x) - self.shift)

    module, x = Shifted().eval(), torch.randn(3, 8, *size)
    for tile in ("slim", "paired"):
        fast = fast_of(module, [x], choice("tf32", tile, STRIPS), SM_90)
        assert error(module, fast, x) < 1e-3


def test_operands_of_wide_rows_that_start_anywhere() -> None:
    """Their rows are stored by lanes, since TMA would need multiples of 16 bytes."""
    torch.manual_seed(0)
    module = Short(24).eval()
    x = torch.randn(1, 6, 4, 893)
    y = torch.randn(24 * 2 * 891 + 1)[1:].view(1, 24, 2, 891)
    way = choice("tf32", "slim", STRIPS)
    _, result = written(module, [x, y], SM_90, convolutions=way)
    assert "kBySectors = true" in (result.text or "")
    fast = fast_of(module, [x, y], way, SM_90)
    assert error(module, fast, x, y) < 1e-3
    assert error(module, fast, x, y.clone()) < 1e-3
    for wide in (254, 100, 896):  # of tiles that do not overlap: too many more, one, whole sectors
        x, y = torch.randn(1, 6, 4, wide + 2), torch.randn(1, 24, 2, wide)
        assert error(module, fast, x, y) < 1e-3
