"""Convolutions of one long row of places between the library's, on a GPU: against float64, and to
the bit."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from refold import introspect
from test_flat_last import CASES, CLASS, Between, Shortcuts, anyway, flat_where_there_are
from test_strips import SM_90
from tests.gpu.test_convolutions import fast_of

pytestmark = pytest.mark.gpu
__all__ = ["anyway"]


@pytest.fixture(autouse=True)
def tf32(monkeypatch: pytest.MonkeyPatch, anyway: Iterator[None]) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


def check(module: nn.Module, x: torch.Tensor, channels: tuple[int, ...], tile: str) -> None:
    module = copy.deepcopy(module).eval().cuda()
    fast = fast_of(module, [x], flat_where_there_are(*channels, tile=tile), SM_90)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        got, truth = fast(x), copy.deepcopy(module).double()(x.double())
        got, truth = ([t] if isinstance(t, torch.Tensor) else list(t) for t in (got, truth))
        for g, t in zip(got, truth, strict=True):
            assert float((g - t).norm() / t.norm()) < CLASS
        for _ in range(20):
            again = fast(x)
            again = [again] if isinstance(again, torch.Tensor) else list(again)
            assert all(map(torch.equal, got, again))


@pytest.mark.parametrize("case", CASES)
def test_they_hand_images_on_with_their_channels_last(case: str) -> None:
    module, channels, tile = CASES[case]
    check(module, torch.randn(3, 3, 13, 18, device="cuda"), channels, tile)


@pytest.mark.parametrize("long", [False, True])
def test_a_shortcut_may_lie_otherwise(long: bool) -> None:
    check(Shortcuts(long), torch.randn(2, 64, 9, 11, device="cuda"), (64,), "slim")


def test_more_tiles_than_processors() -> None:
    check(Between(128), torch.randn(64, 3, 113, 114, device="cuda"), (64, 128), "broad")
