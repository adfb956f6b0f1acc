"""Convolutions of one long row of places on a GPU: against float64, and to the bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from refold import introspect
from test_flat import CASES, CLASS, OF_FP32, SCALES, drawn, flat
from test_random_convolutions import Through, check_as_accurate
from test_strips import SM_90
from tests.gpu.test_convolutions import fast_of

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got - truth).norm() / truth.norm())


BARS = {"tf32": CLASS, "ieee": OF_FP32}


OF_EITHER = [c for c, (_, module, _) in CASES.items() if module.stride[-1] == 1]


@pytest.mark.parametrize(
    "case, kind", [*((c, "tf32") for c in CASES), *((c, "ieee") for c in OF_EITHER)]
)
def test_a_long_row_of_places(case: str, kind: str) -> None:
    tile, module, size = CASES[case]
    module, x = copy.deepcopy(module).cuda(), torch.randn(size, device="cuda")
    fast = fast_of(module, [x], flat(tile, kind), SM_90)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, truth = fast(x), copy.deepcopy(module).double()(x.double())
        assert error(got, truth) < BARS[kind]
        for _ in range(20):
            assert torch.equal(got, fast(x))


LARGE = {  # more tiles than processors, and sums of many products
    "as a network's last": ("broad", nn.Conv2d(512, 512, 3, padding=1), (64, 512, 7, 7)),
    "as its third": ("broad", nn.Conv2d(256, 256, 3, padding=1), (64, 256, 14, 14)),
    "as its first": ("slim", nn.Conv2d(64, 64, 3, padding=1), (64, 64, 56, 56)),
    "of volumes": ("broad", nn.Conv3d(64, 128, 5, padding=4), (4, 64, 13, 29, 28)),
    "wide": ("slim", nn.Conv2d(64, 64, 5, padding=2), (2, 64, 300, 390)),
    "transposed": ("broad", nn.ConvTranspose2d(64, 128, 5, padding=1), (128, 64, 32, 32)),
}
BY_STEPS = {
    "by steps": ("slim", nn.ConvTranspose2d(64, 64, 4, 2, padding=1), (8, 64, 250, 131)),
    "volumes by steps": ("broad", nn.ConvTranspose3d(64, 128, 3, 2, 1), (4, 64, 12, 24, 25)),
}


@pytest.mark.parametrize(
    "case, kind", [*((c, k) for c in LARGE for k in BARS), *((c, "tf32") for c in BY_STEPS)]
)
def test_as_accurate_as_the_library(case: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tile, module, size = (LARGE | BY_STEPS)[case]
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    module, x = copy.deepcopy(module).cuda(), torch.randn(size, device="cuda")
    fast = fast_of(module, [x], flat(tile, kind), SM_90)
    with torch.no_grad():
        got, eager = fast(x), module(x)
        truth = copy.deepcopy(module).double()(x.double())
        assert error(got, truth) < 1.1 * error(eager, truth)
        for _ in range(20):
            assert torch.equal(got, fast(x))


def test_each_image_has_a_scale_of_its_own() -> None:
    module = nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()
    x = torch.stack([torch.randn(64, 9, 9, device="cuda") * s for s in SCALES])
    x[5, :, :5] *= 1e-30  # and a dark place beside bright ones
    fast = fast_of(module, [x], flat("slim"), SM_90)
    with torch.no_grad():
        got, truth = fast(x), copy.deepcopy(module).double()(x.double())
    for i, scale in enumerate(SCALES):
        assert error(got[i], truth[i]) < CLASS if scale else not got[i].any()
    assert error(got[5, :, :4], truth[5, :, :4]) < CLASS


@pytest.mark.parametrize("kind", BARS)
@pytest.mark.parametrize("seed", range(6))
def test_random_convolutions(seed: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six at a time."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")
    random = torch.Generator().manual_seed(100 + seed)
    torch.manual_seed(seed)
    pairs = [drawn(random) for _ in range(6)]
    module, images = Through([m for m, _ in pairs]).cuda(), [x.cuda() for _, x in pairs]
    fast = fast_of(module, images, flat(("broad", "slim")[seed % 2], kind), SM_90)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, images) is None
        got, eager = fast(*images), module(*images)
        truth = copy.deepcopy(module).double()(*(x.double() for x in images))
        for g, e, t in zip(got, eager, truth, strict=True):
            check_as_accurate(g, e, t, kind)
        for _ in range(20):
            for g, again in zip(got, fast(*images), strict=True):
                assert torch.equal(g.nan_to_num(), again.nan_to_num())
