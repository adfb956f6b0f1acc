"""What forward writes, it writes once a call: `refold.optimize` and a call that is tried run it
more often, and leave all tensors as they were."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import nn

import refold


class Writes(nn.Module):
    """Writes at one place. Two results: only a real call tells whether they share memory."""

    def __init__(self, write: Callable[[Writes, torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.mean = nn.Parameter(torch.zeros(6), requires_grad=False)
        self.register_buffer("count", torch.zeros(6))
        self.plain = torch.zeros(6)
        self.held = {"a": [torch.zeros(6)]}
        self.write = write

    def forward(self, x, more=None, writes=True):
        y = self.fc(x) + self.mean + self.plain + self.count
        if more is not None:
            y = y + more["a"]
        if writes:
            y = y + self.held["a"][0]
            with torch.no_grad():
                self.write(self, x, x if more is None else more["a"])
        return y, y * 2


def _turned(net: Writes, x: torch.Tensor, more: torch.Tensor) -> None:
    net.mean.data = net.mean.data * 0.5 + 1.0


WRITES: Mapping[str, Callable[[Writes, torch.Tensor, torch.Tensor], object]] = {
    "an argument": lambda net, x, more: x.add_(1),
    "a view of an argument": lambda net, x, more: x[1:].mul_(0.5),
    "an argument as a result": lambda net, x, more: torch.add(x, 1, out=x),
    "a tensor in a container": lambda net, x, more: more.add_(1),
    "a parameter": lambda net, x, more: net.mean.lerp_(torch.ones(6), 0.5),
    "a parameter's data": lambda net, x, more: net.mean.data.add_(1),
    "a parameter with other data": _turned,
    "a buffer": lambda net, x, more: net.count.add_(1),
    "a plain attribute": lambda net, x, more: net.plain.add_(1),
    "what a container holds": lambda net, x, more: net.held["a"][0].add_(1),
}


def _of(net: Writes, *given: torch.Tensor) -> list[torch.Tensor]:
    return [net.mean.detach(), net.count, net.plain, net.held["a"][0], *given]


def _check_steps(net: Writes, fast: nn.Module) -> None:
    """Three calls beside a copy's."""
    eager = copy.deepcopy(net)
    for _ in range(3):
        x, more = torch.randn(4, 6), torch.zeros(4, 6)
        own = x.clone(), more.clone()
        with torch.no_grad():
            found, expected = fast(x, {"a": more}), eager(own[0], {"a": own[1]})
        both = [*found, *_of(net, x, more)], [*expected, *_of(eager, *own)]
        torch.testing.assert_close(*both)


def _check(write: Callable[[Writes, torch.Tensor, torch.Tensor], object], training: bool) -> None:
    net, x, more = Writes(write), torch.randn(4, 6), torch.zeros(4, 6)
    before = copy.deepcopy(_of(net, x, more))
    fast = refold.optimize(net, x, {"a": more}, measure=False, training=training)
    torch.testing.assert_close(_of(net, x, more), before, rtol=0, atol=0)
    _check_steps(net, fast)


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_optimize_leaves_what_forward_writes(write):
    _check(write, training=False)


@pytest.mark.filterwarnings("ignore:refold")
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_optimize_for_training_leaves_what_forward_writes(write):
    _check(write, training=True)


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_call_of_another_form_writes_once(write):
    net = Writes(write).eval()
    fast = refold.optimize(net, torch.randn(4, 6), writes=False, measure=False)
    assert fast is not net
    _check_steps(net, fast)
