"""Images with their channels last between the library's convolutions and pointwise kernels, on a
GPU: as on the emulator, and at the sizes for which it is done."""

from __future__ import annotations

import copy
from unittest import mock

import pytest
import torch
from torch import nn

from agree import check_values, error_of
from refold import introspect, pipeline
from test_models import written
from test_turned import SM_90, All, Chain, Net, activation, drawn, turned

from .machine import DEVICE

pytestmark = pytest.mark.gpu
LAST, KEPT = {4: torch.channels_last, 5: torch.channels_last_3d}, torch.contiguous_format


@pytest.fixture(autouse=True)
def convolutions_in_tf32(convolutions_in_float32: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library converts images of that class alone."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)


def on_the_gpu(module: nn.Module, inputs: list[torch.Tensor], so: int) -> None:
    """Compares a module with its fast twin, twice; strides, too."""
    _, result = written(module, inputs, SM_90, convolutions=lambda c: None)
    assert turned(result.modes[0].plan) == so
    module.to(DEVICE)
    fast = pipeline.bind_for_class(result.text, module)
    given = [x.to(DEVICE) for x in inputs]
    with torch.no_grad():
        assert introspect.fallback_reason(fast, given) is None
        got, again, eager = fast(*given), fast(*given), module(*given)
        truth = copy.deepcopy(module).double()(*(x.double() for x in given))
        # of some sizes the library computes in TF32 where channels lie last alone
        last = module(*(x.contiguous(memory_format=LAST.get(x.dim(), KEPT)) for x in given))
    sides = ([s] if isinstance(s, torch.Tensor) else s for s in (got, again, eager, truth, last))
    for g, a, e, t, other in zip(*sides, strict=True):
        for found in (g, a):
            assert found.stride() == e.stride()
            check_values(found.cpu(), e.cpu(), t.cpu(), error_of(other.cpu(), t.cpu()))


def test_all_cases_at_odd_sizes() -> None:
    torch.manual_seed(0)
    with (
        mock.patch("refold.planner.turned._GAIN", -1e9),
        mock.patch("refold.planner.conversions.kind_of", lambda c, allowed: "tf32"),
    ):
        on_the_gpu(All().eval(), drawn(), 20)


@pytest.mark.parametrize(
    ("module", "size", "so"),
    [
        (Net(nn.ConvTranspose3d(64, 128, 3, 2, 1), activation), (4, 64, 12, 24, 24), 1),
        (Chain(channels=64), (64, 64, 56, 56), 3),
        (Chain(channels=64, residual=True), (64, 64, 56, 56), 3),
    ],
)
def test_at_its_own_sizes(module: nn.Module, size: tuple[int, ...], so: int) -> None:
    torch.manual_seed(0)
    on_the_gpu(module.eval(), [torch.randn(size)], so)
