"""Convolutions whose images are one long row of places, on the emulator."""

from __future__ import annotations

from math import inf, nan, prod
from typing import Any

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.flat import FLAT, takes
from refold.plan.convolution import of_node
from refold.schedule import Schedule
from test_convolutions import choice, fast_of, plan_of, relative, truth_of
from test_models import written
from test_random_convolutions import Through, check_as_accurate
from test_strips import SM_90, error
from tests.emulator.module import emulated

# errors of sums of products of eleven bits, and of twenty-two
CLASS, OF_FP32 = 5e-4, 4e-7


def flat(tile: str, kind: str = "tf32"):
    return choice(kind, tile, FLAT)


CASES = {
    "images": ("broad", nn.Conv2d(64, 128, 3, padding=1), (2, 64, 9, 11)),
    "channels and features that fill no tile": ("slim", nn.Conv2d(70, 66, 3), (3, 70, 9, 17)),
    "several tiles of features": ("broad", nn.Conv2d(64, 300, 3, padding=1), (2, 64, 7, 8)),
    "transposed": ("broad", nn.ConvTranspose2d(40, 130, 5, padding=1), (3, 40, 7, 9)),
    "transposed, all padded": ("slim", nn.ConvTranspose2d(40, 64, 5, padding=4), (3, 40, 9, 9)),
    "volumes": ("slim", nn.Conv3d(24, 64, 3, padding=1, bias=False), (2, 24, 4, 5, 6)),
    "transposed volumes": ("broad", nn.ConvTranspose3d(24, 70, 3, padding=1), (2, 24, 3, 4, 5)),
    "lines": ("slim", nn.Conv1d(64, 40, 9, padding=4), (3, 64, 100)),
    "groups": ("broad", nn.Conv2d(128, 256, 3, padding=1, groups=2), (2, 128, 6, 6)),
    "unlike sides, spread apart": (
        "slim",
        nn.Conv2d(96, 64, (3, 5), padding=(2, 0), dilation=(2, 1)),
        (2, 96, 6, 150),
    ),
    "a window has one row of taps": ("slim", nn.Conv2d(64, 32, 5, padding=2), (2, 64, 5, 390)),
    "transposed by steps": (
        "broad",
        nn.ConvTranspose2d(64, 130, 3, 2, padding=1, output_padding=1),
        (2, 64, 7, 9),
    ),
    "transposed, two taps a phase": (
        "slim",
        nn.ConvTranspose2d(40, 64, 4, 2, padding=1, output_padding=1),
        (3, 40, 9, 9),
    ),
    "transposed by unlike steps": (
        "slim",
        nn.ConvTranspose2d(40, 40, (5, 4), (3, 1), padding=(2, 0)),
        (2, 40, 5, 20),
    ),
    "transposed volumes by steps": (
        "broad",
        nn.ConvTranspose3d(24, 70, 3, 2, padding=1, output_padding=(1, 0, 1)),
        (2, 24, 3, 4, 5),
    ),
    "transposed lines, longer": (
        "slim",
        nn.ConvTranspose1d(64, 40, 2, 2, output_padding=1),
        (3, 64, 150),
    ),
    "transposed, spread apart": (
        "slim",
        nn.ConvTranspose2d(64, 64, (4, 3), 2, padding=(2, 3), dilation=3, output_padding=1),
        (2, 64, 9, 6),
    ),
    "transposed, one row of taps a window": (
        "slim",
        nn.ConvTranspose2d(64, 40, 4, 2, padding=1),
        (2, 64, 3, 390),
    ),
    "one tap": ("slim", nn.Conv2d(600, 33, 1), (2, 600, 3, 5)),
    "one place": ("slim", nn.Conv2d(64, 64, 3), (5, 64, 3, 3)),
}


@pytest.mark.parametrize("processors", [1, 132])
@pytest.mark.parametrize("case", CASES)
def test_a_long_row_of_places(case: str, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many processors as blocks, or of one, which computes all tiles one after the other."""
    monkeypatch.setenv("EMULATOR_PROCESSORS", str(processors))
    tile, module, size = CASES[case]
    x = torch.randn(size)
    fast = fast_of(module, [x], flat(tile), SM_90)
    assert error(module, fast, x) < CLASS
    assert error(module, fast, torch.cat([x, x.flip(0)])) < CLASS  # another number of images


@pytest.mark.parametrize("processors", [1, 132])
@pytest.mark.parametrize("case", [c for c, (_, m, _) in CASES.items() if m.stride[-1] == 1])
def test_of_fp32_class(case: str, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATOR_PROCESSORS", str(processors))
    tile, module, size = CASES[case]
    x = torch.randn(size)
    fast = fast_of(module, [x], flat(tile, "ieee"), SM_90)
    assert error(module, fast, x) < OF_FP32
    assert error(module, fast, torch.cat([x, x.flip(0) * 1e-12])) < OF_FP32


class Followed(nn.Module):
    """A convolution, and what its kernel computes of each element."""

    def __init__(self, features: int, long: bool) -> None:
        super().__init__()
        self.conv, self.long = nn.Conv2d(64, features, 3, padding=1), long
        self.scale = nn.Parameter(torch.randn(features, 1, 1))
        self.of_places = nn.Parameter(torch.randn(5, 6))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = self.conv(x) * self.scale + self.of_places
        if self.long:
            made = nn.functional.mish(nn.functional.gelu(made)) + torch.tanh(made).sin()
        return torch.relu(made) + y


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("tile, features", [("broad", 128), ("broad", 97), ("slim", 64)])
def test_what_follows_on_each_element(tile: str, features: int, long: bool) -> None:
    x, y = torch.randn(2, 64, 5, 6), torch.randn(2, features, 5, 6)
    module = Followed(features, long)
    fast = fast_of(module, [x, y], flat(tile), SM_90)
    assert error(module, fast, x, y) < CLASS


@pytest.fixture(scope="module", params=["tf32", "ieee"])
def one(request: pytest.FixtureRequest) -> tuple[nn.Module, nn.Module, float]:
    """A convolution of images of 9 x 9, its twin, and how far that may err."""
    torch.manual_seed(0)
    module, x = nn.Conv2d(64, 64, 3, padding=1).eval(), torch.randn(4, 64, 9, 9)
    bar = CLASS if request.param == "tf32" else OF_FP32
    return module, fast_of(module, [x], flat("slim", request.param), SM_90), bar


SCALES = (1.0, 1e-30, 1e30, 1e-3, 1e4, 3.0, 2.0**-40, 0.0)


def test_each_image_has_a_scale_of_its_own(one: tuple[nn.Module, nn.Module, float]) -> None:
    """Of images side by side, which tiles have places of together."""
    module, fast, bar = one
    x = torch.stack([torch.randn(64, 9, 9) * s for s in SCALES])
    with torch.no_grad():
        module.bias.zero_()
        fast.bias.zero_()
        got, truth = fast(x), truth_of(module, x)
    for i, scale in enumerate(SCALES):
        assert relative(got[i], truth[i]) < bar if scale else not got[i].any()


@pytest.mark.parametrize("dark", [2.0**-8, 2.0**-19, 2.0**-26, 1e-30])
def test_a_dark_place_keeps_its_bits(one: tuple[nn.Module, nn.Module, float], dark: float) -> None:
    """Beside bright ones, which its kernel does not see."""
    module, fast, bar = one
    x = torch.randn(2, 64, 9, 9)
    x[1, :, :5] *= dark
    with torch.no_grad():
        module.bias.zero_()
        fast.bias.zero_()
        got, truth = fast(x), truth_of(module, x)
    assert relative(got[0], truth[0]) < bar
    assert relative(got[1, :, :4], truth[1, :, :4]) < bar
    assert relative(got[1, :, 6:], truth[1, :, 6:]) < bar


@pytest.mark.parametrize("value", [inf, -inf, nan])
@pytest.mark.parametrize("where", ["images", "kernels"])
def test_special_values(one: tuple[nn.Module, nn.Module, float], value: float, where: str) -> None:
    """They are where PyTorch has them, and nothing else is touched."""
    module, fast, bar = one
    x = torch.randn(3, 64, 9, 9)
    before = module.weight.detach().clone()
    with torch.no_grad():
        if where == "images":
            x[1, 5, 4, 4] = value
        else:
            module.weight[7, 5, 1, 1] = value
            fast.weight.copy_(module.weight)
        got, eager, truth = fast(x), module(x), truth_of(module, x)
        module.weight.copy_(before)
        fast.weight.copy_(before)
    assert torch.equal(got.isnan(), eager.isnan())
    assert torch.equal(got.isinf(), eager.isinf())
    known = eager.isfinite()
    assert relative(got[known], truth[known]) < bar


def test_the_same_bits_again(one: tuple[nn.Module, nn.Module, float]) -> None:
    """Whatever other images are there, and in other calls."""
    _, fast, _ = one
    x = torch.randn(6, 64, 9, 9)
    with torch.no_grad():
        whole = fast(x)
        assert torch.equal(whole, fast(x))
        fast(x * 1e20)
        assert torch.equal(whole[2:4], fast(x[2:4]))


def test_no_images() -> None:
    module = nn.Conv2d(64, 64, 3)
    fast = fast_of(module, [torch.randn(2, 64, 5, 5)], flat("slim"), SM_90)
    with torch.no_grad():
        assert fast(torch.randn(0, 64, 5, 5)).shape == (0, 64, 3, 3)


REFUSED = {
    "steps of two": nn.Conv2d(64, 64, 3, 2),
    "more is padded than the kernel reaches over": nn.Conv2d(64, 64, 3, padding=3),
    "a window that does not fit": nn.Conv1d(64, 64, 9, dilation=400),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_kernel_does_not_take(case: str) -> None:
    module = REFUSED[case]
    size = (2, 64, 4000) if isinstance(module, nn.Conv1d) else (2, 64, 9, 9)
    mode, _ = plan_of(module, torch.randn(size), flat("slim"), SM_90)
    (step,) = mode.plan.steps
    nodes = step.nodes if hasattr(step, "nodes") else (step.node,)
    (node,) = (n for n in nodes if n.op in ("conv", "conv_transpose"))
    assert not takes(Schedule(FLAT, "slim"), of_node(node), "tf32")


def test_two_phases_along_the_width_are_of_tf32_class() -> None:
    x, module = torch.randn(2, 64, 9, 9), nn.ConvTranspose2d(64, 64, 4, 2)
    mode, _ = plan_of(module, x, choice("tf32", "slim", FLAT), SM_90)
    c = of_node(mode.plan.steps[0].product)
    assert takes(Schedule(FLAT, "slim"), c, "tf32")
    assert not takes(Schedule(FLAT, "slim"), c, "ieee")


def drawn(random: torch.Generator) -> tuple[nn.Module, torch.Tensor]:
    """A convolution of any kind, by steps only if it is transposed, and images for it."""

    def one(*of: int) -> int:
        return of[int(torch.randint(len(of), (), generator=random))]

    while True:
        places, groups = one(1, 2, 2, 2, 3), one(1, 1, 1, 2)
        channels, features = groups * one(5, 32, 64, 72), groups * one(16, 40, 64, 70, 128)
        transposed = one(0, 0, 1) == 1
        kernel, dilations = (
            tuple(one(*of) for _ in range(places)) for of in ((1, 2, 3, 3, 5), (1, 1, 2))
        )
        reaches = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        paddings = tuple(one(*range(min(r, 3) + 1)) for r in reaches)
        sizes = tuple(one(*{1: (1, 40, 300), 2: (3, 8, 13), 3: (2, 4, 6)}[places]) for _ in kernel)
        facts: dict[str, Any] = {"groups": groups, "dilation": dilations, "padding": paddings}
        if transposed:
            facts["stride"] = strides = tuple(one(1, 2, 2) for _ in kernel)
            facts["output_padding"] = tuple(one(*range(s)) for s in strides)
        name = f"Conv{'Transpose' if transposed else ''}{places}d"
        module = getattr(nn, name)(channels, features, kernel, **facts)
        x = torch.randn((one(1, 2, 5), channels, *sizes), generator=random)
        x *= (1.0, 1e-30, 1e4, 1e6)[one(0, 1, 2, 3)]
        if one(0, 0, 0, 1):
            x.view(-1)[one(0, x.numel() // 2)] = inf
        try:
            made = module(x)
        except RuntimeError:
            continue  # larger than the image
        if made.numel() and prod(module.weight.shape[1:]) * made.numel() < 2e6:
            return module, x


@pytest.mark.parametrize("kind", ["tf32", "ieee"])
@pytest.mark.parametrize("seed", range(12))
def test_random_convolutions(seed: int, kind: str) -> None:
    """Six at a time."""
    random = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    pairs = [drawn(random) for _ in range(6)]
    module, images = Through([m for m, _ in pairs]).eval(), [x for _, x in pairs]
    fast = fast_of(module, images, flat(("broad", "slim")[seed % 2], kind), SM_90)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        got, eager, truth = fast(*images), module(*images), truth_of(module, *images)
        for g, e, t in zip(got, eager, truth, strict=True):
            assert g.shape == e.shape and g.stride() == e.stride()
            check_as_accurate(g, e, t, kind)


FAULTS = {  # a line of the kernel, and what stands there instead
    "a window is read before it is there": (
        "mbarrier_wait(windows_full + kMbarrierBytes * of_windows.slot, of_windows.round);",
        "",
    ),
    "a stage is written while it is read": (
        "mbarrier_wait(empty + kMbarrierBytes * cursor.slot, cursor.round ^ 1);\n"
        "          mbarrier_arrive_expect_tx(barrier, Shape::kStageBytes);",
        "mbarrier_arrive_expect_tx(barrier, Shape::kStageBytes);",
    ),
    "a stage is released before it is read": ("wgmma_wait_group<1>();", ""),
    "sums are read before they are there": ("wgmma_wait_group<0>();", ""),
    "a tap is the one before": ("Shape::Wide::shift(0, wide)", "Shape::Wide::shift(0, 0)"),
    "a place has its neighbour's scale": (
        "acc[i] *= table.unscale[place0 + fragment_place<Together>(i, lane)]",
        "acc[i] *= table.unscale[place0 + fragment_place<Together>(i ^ 1, lane)]",
    ),
    "images are not converted anew": ("if (range.fits()) continue;", "continue;"),
    "taps are of the other phase": (
        "kFirst = Shape::Wide::first_of(0) == 0 ? 0 : 1;",
        "kFirst = Shape::Wide::first_of(0) == 0 ? 1 : 0;",
    ),
    "what hi leaves of images is lost": ("product(small, octet, false, true, add);", ""),
    "what hi leaves of kernels is lost": ("product(small, octet, true, false, true);", ""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one processor, which computes all tiles one after the other. Of one tap there is a window
    for each stage of kernels, of which more are there beforehand."""
    monkeypatch.setenv("EMULATOR_PROCESSORS", "1")
    torch.manual_seed(0)
    module, x = nn.Conv2d(160, 130, 3, padding=1).eval(), torch.randn(6, 160, 8, 8)
    if "window" in fault:
        module, x = nn.Conv2d(640, 130, 1).eval(), torch.randn(6, 640, 8, 8)
    if "phase" in fault:
        module = nn.ConvTranspose2d(160, 130, 3, 2).eval()
    kind, bar = ("ieee", OF_FP32) if "hi leaves" in fault else ("tf32", CLASS)
    x[1::2] *= 1e-20  # images of other scales next to each other
    _, result = written(module, [x], SM_90, convolutions=flat("broad", kind))
    old, new = FAULTS[fault]
    assert old in (result.text or "")
    fast = pipeline.bind_for_class(emulated(result.text.replace(old, new)), module)
    module.bias.data.zero_()
    with torch.no_grad():
        try:
            got = fast(x)
        except RuntimeError:  # the emulator's own checks
            return
    truth = truth_of(module, x)
    assert not all(relative(g, t) < bar for g, t in zip(got, truth, strict=True))
