"""What a mode promises: bits only where every value is rounded as often as PyTorch rounds it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from refold import pipeline
from refold.derive import Options, derive

Forward = Callable[["Net", torch.Tensor], torch.Tensor]


class Net(nn.Module):
    """A forward over two vectors of parameters."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(12))
        self.v = nn.Parameter(torch.rand(12) + 0.5)
        self.compute = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, x)


TABLE: dict[str, tuple[str, Forward]] = {
    "a parameter as it is": ("bits", lambda m, x: x.abs() + m.w),
    "one rounding": ("bits", lambda m, x: x.abs() - m.w * m.v),
    "one rounding, and what rounds nothing": (
        "bits",
        lambda m, x: x.abs() - (m.w.relu() / 2.0).neg(),
    ),
    "a number that float32 does not have": ("reals", lambda m, x: x.abs() + m.w * 0.1),
    "two roundings": ("reals", lambda m, x: x.abs() * (m.w * m.v + m.w)),
    "a function of a library": ("reals", lambda m, x: x.abs() * m.w.exp()),
    "a number that is made": (
        "reals",
        lambda m, x: x.abs() + torch.arange(12, dtype=x.dtype) * 0.1,
    ),
    "a product and a sum in one kernel": ("reals", lambda m, x: x * m.w + m.v),
}


@pytest.mark.parametrize("name", TABLE)
def test_label(name: str) -> None:
    label, forward = TABLE[name]
    module, x = Net(forward).eval(), torch.randn(6, 12)
    _, device = pipeline.target_for("cpu")
    found = derive(module, [x], device, Options(accuracy=False))
    assert [d.mode.label for d in found if d.mode.plan] == [label] * len(found)
