"""A forward that itself enters one of PyTorch's modes of gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import refold
from refold.capture import CaptureError, capture

MODES = {"inference": torch.inference_mode, "no grad": torch.no_grad, "grad": torch.enable_grad}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.b(self.a(x).relu()).sum(-1)


class Inference(Net):
    @torch.inference_mode()
    def forward(self, x):
        return super().forward(x)


class WithoutGradients(Net):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)


class Inner(Net):
    def __init__(self):
        super().__init__()
        self.inner = Inference()

    def forward(self, x):
        return super().forward(x) + self.inner(x)


class Mixed(Net):
    def forward(self, x):
        with torch.inference_mode():
            y = self.a(x)
        return y, self.b(x)


def of_kind(result):
    found = result if isinstance(result, tuple) else (result,)
    return [(t.is_inference(), t.requires_grad, t.grad_fn is None) for t in found]


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("kind", [Inference, WithoutGradients, Inner, Mixed])
def test_results_are_of_the_mode_that_forward_enters(kind):
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(4, 32)
    fast = refold.optimize(module, x, measure=False)
    for frozen in (False, True):
        module.requires_grad_(not frozen)
        for mode in MODES.values():
            with mode():
                expected, found = module(x), fast(x)
            assert of_kind(found) == of_kind(expected)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    if kind is not Mixed:
        assert refold.status(fast).fast


class WithGradients(Net):
    @torch.enable_grad()
    def forward(self, x):
        return super().forward(x)


class Marked(Net):
    def forward(self, x):
        return super().forward(x).detach().requires_grad_()


@pytest.mark.parametrize("kind", [WithGradients, Marked])
def test_results_that_forward_gives_gradients_are_not_captured(kind):
    with pytest.raises(CaptureError, match="makes results with gradients"):
        capture(kind().eval(), [torch.randn(4, 32)], training=False)


def test_what_wants_gradients_later_has_them():
    """Frozen, a forward that turns gradients on makes none."""
    module, x = WithGradients().eval().requires_grad_(False), torch.randn(4, 32)
    fast = refold.optimize(module, x, measure=False)
    with torch.no_grad():
        assert of_kind(fast(x)) == of_kind(module(x))
        assert refold.status(fast).fast
        for given, wanted in ((x.clone().requires_grad_(), False), (x, True)):
            module.requires_grad_(wanted)
            assert fast(given).requires_grad and module(given).requires_grad
