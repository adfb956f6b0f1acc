"""Convolutions by our kernels on a GPU: random ones against float64, and again to the bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from agree import check_values
from refold import introspect, pipeline
from refold.convolve import DIRECT, IMPLICIT, PATCHES, STRIPS, Choice
from refold.emit.load import load_text
from refold.schedule import Kernels
from test_convolutions import Block, choice
from test_models import written
from test_patch_channels import Passes
from test_random_convolutions import Through, check_as_accurate, drawn, drawn_of_all
from test_strip_channels import Reduced
from test_strip_statistics import observed
from test_strips import Enlarged, Pooled

pytestmark = pytest.mark.gpu


def fast_of(
    module: nn.Module, images: list[torch.Tensor], convolutions: Choice, target: str
) -> nn.Module:
    _, result = written(module.eval(), images, target, convolutions=convolutions)
    cls = load_text(result.text, {"Model": type(module)}).ModelNew
    return pipeline.adopt(cls, module)


HOW = {
    "cuda:sm_80": (("ieee", IMPLICIT), ("tf32", IMPLICIT)),
    "cuda:sm_90": (("ieee", IMPLICIT), ("tf32", IMPLICIT), ("ieee", STRIPS), ("tf32", STRIPS)),
}
WAYS = [(target, *how) for target, ways in HOW.items() for how in ways]
TILES = [(*way, tile) for way in WAYS for tile in way[-1].tiles]


@pytest.mark.parametrize(("target", "kind", "kernels", "tile"), TILES)
@pytest.mark.parametrize("seed", range(10))
def test_random_convolutions(
    seed: int,
    target: str,
    kind: str,
    kernels: Kernels,
    tile: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library computes what the kernels do not take, by sums in the same order each time."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    random = torch.Generator().manual_seed(1000 + seed)
    torch.manual_seed(seed)
    pairs = [drawn(random, kernels is STRIPS) for _ in range(8)]
    module = Through([m for m, _ in pairs]).cuda()
    images = [x.cuda() for _, x in pairs]
    fast = fast_of(module, images, choice(kind, tile, kernels), target)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        got, eager = fast(*images), module(*images)
        truth = copy.deepcopy(module).double()(*(x.double() for x in images))
        for g, e, t in zip(got, eager, truth, strict=True):
            known = t.isfinite()
            scale = t[known].abs().max().item() if known.any() else 0.0
            check_values(g, e, t, 2e-4 * scale if kind == "tf32" else 0.0)
        for _ in range(20):
            for g, again in zip(got, fast(*images), strict=True):
                assert torch.equal(g.nan_to_num(), again.nan_to_num())


@pytest.mark.parametrize("kernels", [PATCHES, DIRECT], ids=str)
@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("target", HOW)
@pytest.mark.parametrize("seed", range(6))
def test_random_convolutions_of_all_forms(
    seed: int, target: str, kind: str, kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transposed ones, too, and those of few features. The library computes what the kernels do not
    take, by sums in the same order each time."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    random = torch.Generator().manual_seed(2000 + seed)
    torch.manual_seed(seed)
    each = (8, 16, 33, 70) if kernels is PATCHES else (1, 1, 2, 3, 5, 8)
    pairs = [drawn_of_all(random, each) for _ in range(8)]
    module, images = Through([m for m, _ in pairs]).cuda(), [x.cuda() for _, x in pairs]
    tile = list(kernels.tiles)[seed % len(kernels.tiles)]
    fast = fast_of(module, images, choice(kind, tile, kernels), target)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        got, eager = fast(*images), module(*images)
        truth = copy.deepcopy(module).double()(*(x.double() for x in images))
        for g, e, t in zip(got, eager, truth, strict=True):
            check_as_accurate(g, e, t, kind)
        for _ in range(20):
            for g, again in zip(got, fast(*images), strict=True):
                assert torch.equal(g.nan_to_num(), again.nan_to_num())


# level 2 of KernelBench: channels, features, size, images; error of the class
LARGE = (
    *((64, 128, 128, 16), (8, 64, 128, 16), (3, 24, 224, 8), (64, 64, 256, 4)),
    *((16, 128, 1022, 1), (8, 64, 893, 1)),  # wide rows that start anywhere
)


@pytest.mark.parametrize(("target", "kind", "kernels"), WAYS)
@pytest.mark.parametrize("sizes", LARGE)
def test_large_images(
    sizes: tuple[int, int, int, int],
    target: str,
    kind: str,
    kernels: Kernels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    torch.manual_seed(0)
    channels, features, size, count = sizes
    module = Block(channels, features).cuda()
    x = torch.randn(count, channels, size, size, device="cuda")
    how = choice(kind, "broad" if features > 64 else "slim", kernels)
    fast = fast_of(module, [x], how, target)
    with torch.no_grad():
        got, truth = fast(x), copy.deepcopy(module).double()(x.double())
    error = float((got - truth).norm() / truth.norm())
    assert error < {"ieee": 3e-7, "tf32": 4e-4}[kind]


# channels, features, sizes, images; and of short rows those of several images in a tile
VOLUMES = (
    (32, 64, (9, 40, 128), 3, "slim"),
    (8, 64, (9, 30, 62), 5, "joined"),
    (24, 40, (5, 20, 28), 9, "joined"),
    (64, 64, (1, 56, 56), 7, "joined"),
)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("sizes", VOLUMES)
def test_large_volumes_by_strips(
    sizes: tuple[int, int, tuple[int, ...], int, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    torch.manual_seed(0)
    channels, features, (deep, high, wide), count, tile = sizes
    flat = deep == 1
    module = (nn.Conv2d if flat else nn.Conv3d)(channels, features, 3, padding=1).cuda()
    x = torch.randn(count, channels, *([] if flat else [deep]), high, wide, device="cuda")
    fast = fast_of(module, [x], choice(kind, tile, STRIPS), "cuda:sm_90")
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, truth = fast(x), copy.deepcopy(module).double()(x.double())
        assert all(torch.equal(got, fast(x)) for _ in range(20))
    error = float((got - truth).norm() / truth.norm())
    assert error < {"ieee": 3e-7, "tf32": 4e-4}[kind]


def channels_of(kind: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """So many that the library computes 3 x 3 in this class, which PyTorch's flag then says."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    torch.manual_seed(0)
    return 40 if kind == "tf32" else 9


WINDOWS = (
    # tile, features, window, largest, size
    ("slim", 64, (4, 4), True, (130, 254)),
    ("slim", 70, (2, 2), False, (77, 131)),
    ("broad", 128, (2, 2), True, (128, 128)),
    ("broad", 136, (3, 4), False, (100, 390)),
)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("windows", WINDOWS)
def test_windows_of_results(
    windows: tuple[str, int, tuple[int, int], bool, tuple[int, int]],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tile, features, window, largest, size = windows
    channels = channels_of(kind, monkeypatch)
    module = Pooled(channels, features, window, largest).cuda().eval()
    check_strips(module, torch.randn(6, channels, *size, device="cuda"), kind, tile)


CHANNELS = (
    # tile, convolution's features, reduction, size
    ("slim", 64, "min", (130, 254)),
    ("slim", 50, "sum", (77, 131)),
    ("broad", 128, "max", (128, 128)),
    ("broad", 100, "mean", (100, 390)),
)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("reduced", CHANNELS)
def test_reduced_channels(
    reduced: tuple[str, int, str, tuple[int, int]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tile, features, op, size = reduced
    channels = channels_of(kind, monkeypatch)
    module = Reduced(nn.Conv2d(channels, features, 3), op).cuda().eval()
    check_strips(module, torch.randn(6, channels, *size, device="cuda"), kind, tile)


PASSES = (
    # tile, convolution, what follows over its channels, size
    ("features64", nn.ConvTranspose3d(32, 64, 3, 2, 1, 1), "softmax", (16, 32, 32)),
    ("features64", nn.Conv2d(24, 50, 3), "logsumexp", (130, 77)),
    ("features32", nn.ConvTranspose3d(16, 24, 3, 2, 1), "log_softmax", (7, 20, 33)),
    ("features32", nn.Conv3d(8, 32, 3), "min", (9, 30, 31)),
    ("features16", nn.ConvTranspose3d(3, 16, 3, 2, 1), "logsumexp", (16, 32, 32)),
    ("features16", nn.Conv3d(3, 13, 3), "softmax", (16, 32, 32)),
)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("passes", PASSES, ids=lambda p: f"{p[0]}-{p[2]}")
def test_passes_over_channels_by_patches(
    passes: tuple[str, nn.Module, str, tuple[int, ...]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    torch.manual_seed(0)
    tile, conv, op, size = passes
    module = Passes(copy.deepcopy(conv), op).cuda().eval()
    x = torch.randn(6, conv.in_channels, *size, device="cuda")
    check_strips(module, x, kind, tile, PATCHES)


STATISTICS = (
    # tile, features, what is said of them, size
    ("slim", 64, "both", (128, 128)),
    ("slim", 24, "groups", (61, 256)),
    ("slim", 70, "mean", (20, 260)),
    ("broad", 128, "batch", (33, 131)),
    ("broad", 100, "image", (9, 300)),
)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("said", STATISTICS)
def test_statistics_of_channels(
    said: tuple[str, int, str, tuple[int, int]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tile, features, of, size = said
    channels = channels_of(kind, monkeypatch)
    module = observed(nn.Conv2d(channels, features, 3), kind, of).cuda().eval()
    check_strips(module, torch.randn(6, channels, *size, device="cuda"), kind, tile)


BY_PATCHES = (
    # tile, convolution, what is said of its channels, size
    ("features64", nn.ConvTranspose3d(32, 64, 3, 2, 1, 1), "batch", (8, 16, 32)),
    ("features32", nn.ConvTranspose3d(16, 24, 3, 2, 1), "both", (7, 20, 33)),
    ("features32", nn.ConvTranspose2d(24, 28, 3, 2), "groups", (61, 40)),
    ("features16", nn.ConvTranspose3d(3, 16, 3, 2, 1), "mean", (16, 32, 32)),
)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("said", BY_PATCHES, ids=lambda p: f"{p[0]}-{p[2]}")
def test_statistics_of_channels_by_patches(
    said: tuple[str, nn.Module, str, tuple[int, ...]], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    torch.manual_seed(0)
    tile, conv, of, size = said
    module = observed(copy.deepcopy(conv), kind, of).cuda().eval()
    x = torch.randn(6, conv.in_channels, *size, device="cuda")
    check_strips(module, x, kind, tile, PATCHES)


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("long", [True, False])
@pytest.mark.parametrize("wide", [64, 100, 33])
def test_two_phases(wide: int, long: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    torch.manual_seed(0)
    channels = 64 if kind == "tf32" else 16
    conv = nn.ConvTranspose2d(
        channels, 128, 4, stride=2, padding=1, output_padding=int(wide % 3 == 1)
    )
    module = Enlarged(conv, long).cuda().eval()
    check_strips(module, torch.randn(7, channels, 64, wide, device="cuda"), kind, "paired")


def check_strips(
    module: nn.Module, x: torch.Tensor, kind: str, tile: str, kernels: Kernels = STRIPS
) -> None:
    """As accurate as eager, and the same bits twenty times."""
    fast = fast_of(module, [x], choice(kind, tile, kernels), "cuda:sm_90")
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, eager = fast(x), module(x)
        truth = copy.deepcopy(module).double()(x.double())
        check_as_accurate(got, eager, truth, kind)
        for _ in range(20):
            assert torch.equal(fast(x), got)
