"""Biases of convolutions: where PyTorch would add them in a pass of its own, what reads the result
adds them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from refold import pipeline
from refold.derive import Options, derive
from refold.ir.ops import CONVOLUTIONS
from refold.plan import ExternCall, Plan
from refold.planner import plan_price

CUDA = ("cuda:sm_80", "cuda:sm_90")


class Net(nn.Module):
    """A convolution, and what reads it."""

    def __init__(self, read, transposed: bool = False) -> None:
        super().__init__()
        kind = nn.ConvTranspose2d if transposed else nn.Conv2d
        self.conv, self.read, self.other = kind(3, 8, 3), read, nn.Conv2d(8, 2, 3)

    def forward(self, x: torch.Tensor):
        return self.read(self.conv(x), self.other)


READ = {
    "an activation": lambda y, conv: torch.tanh(y),
    "a pooling": lambda y, conv: F.max_pool2d(y, 2).sin(),
    "a mean of squares": lambda y, conv: y.square().mean((2, 3)),
    "two kernels": lambda y, conv: (torch.tanh(y), F.max_pool2d(y.cos(), 3, 2)),
}
KEPT = {
    "uneven windows": lambda y, conv: torch.tanh(F.adaptive_avg_pool2d(y, 3)),
    "another convolution": lambda y, conv: torch.tanh(conv(y)),
    "a result, too": lambda y, conv: (y, torch.tanh(y)),
}


def planned(net: nn.Module, target: str, channels_last: bool = False) -> tuple[Plan, float]:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 12, 14)
    if channels_last:
        x, net = (v.to(memory_format=torch.channels_last) for v in (x, net))
    _, device = pipeline.target_for(target, "ieee")
    (found,) = derive(net.eval(), [x], device, Options(measure=False, accuracy=False))
    plan = found.mode.plan
    assert plan is not None
    return plan, plan_price(plan, device.at(torch.float32)).seconds


def biased(plan: Plan) -> list[bool]:
    """Of each convolution that PyTorch computes, whether it adds a bias."""
    calls = (s.node for s in plan.steps if isinstance(s, ExternCall))
    return [n.inputs[2].op != "scalar" for n in calls if n.op in CONVOLUTIONS]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("read", READ)
def test_kernels_add_it(read: str, transposed: bool, channels_last: bool) -> None:
    net = Net(READ[read], transposed)
    for target in CUDA:
        plan, _ = planned(net, target, channels_last)
        if channels_last and "ool" in read:  # PyTorch pools images whose channels lie last
            continue
        assert biased(plan) == [False]
        assert all("add" in [n.op for n in g.nodes] for g in plan.groups[:1])
    assert biased(planned(net, "cpu", channels_last)[0]) == [True]


@pytest.mark.parametrize("read", KEPT)
def test_the_call_adds_it_where_others_read_the_result(read: str) -> None:
    for target in CUDA:
        assert all(biased(planned(Net(KEPT[read]), target)[0])[:1])


def test_a_pass_is_saved() -> None:
    """By the price: as much as a bias costs that PyTorch adds."""
    both = [planned(Net(READ["an activation"]), "cuda:sm_90")[1]]
    without = Net(READ["an activation"])
    without.conv = nn.Conv2d(3, 8, 3, bias=False)
    both.append(planned(without, "cuda:sm_90")[1])
    assert both[0] == pytest.approx(both[1], rel=0.01)
