"""Planning a network takes no more for each of its blocks than for a block alone, and vectors join
the kernel of columns that they follow from where nothing would wait for itself."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import nn

from refold import pipeline
from refold.derive import Options, derive
from refold.plan import Group
from refold.plan.draft import Draft


class Blocks(nn.Module):
    """Convolutions, each with a norm over the batch, one after the other."""

    def __init__(self, count: int) -> None:
        super().__init__()
        made = (nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)) for _ in range(count))
        self.blocks = nn.ModuleList(made)

    def forward(self, x):
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


class AroundACall(nn.Module):
    """A vector of a mean and of what a call makes of the mean."""

    def forward(self, x):
        mean = x.mean(0, keepdim=True)
        return x - (mean + torch.cumsum(mean, -1).exp())


class AroundAKernel(nn.Module):
    """Vectors of two means, of which the second follows from the first by a call."""

    def forward(self, x, y):
        mean = torch.sin(x).mean(0, keepdim=True)
        other = (torch.cos(y) * torch.cumsum(mean, -1)).mean(0, keepdim=True)
        return x - (mean + other.exp()), y * (torch.cumsum(other, -1) + mean)


def plan_of(module: nn.Module, *inputs: torch.Tensor):
    _, device = pipeline.target_for("cpu")
    return derive(module, inputs, device, Options(accuracy=False))[0].mode.plan


def asked(count: int) -> int:
    """How often a plan of so many blocks looks at all that a draft reads."""
    real, calls = Draft.inputs, []
    with mock.patch.object(Draft, "inputs", lambda d: calls.append(d) or real(d)):
        plan_of(Blocks(count).train(), torch.randn(2, 4, 40, 40))
    return len(calls)


def test_what_drafts_read_is_looked_at_as_often_for_each_block():
    first, second, third = (asked(n) for n in (2, 3, 4))
    assert first < second
    assert third - second == second - first


@pytest.mark.parametrize(
    ("cls", "steps"),
    [
        (AroundACall, ["columns", "cumsum", "pointwise", "pointwise"]),
        (
            AroundAKernel,
            ["columns", "cumsum", "columns", "pointwise", "cumsum", "pointwise", "pointwise"],
        ),
    ],
)
def test_a_vector_that_waits_for_another_kernel_is_not_made_in_the_first(cls, steps):
    inputs = [torch.randn(256, 64) for _ in range(1 + (cls is AroundAKernel))]
    plan = plan_of(cls(), *inputs)
    assert [s.family if isinstance(s, Group) else s.node.op for s in plan.steps] == steps
