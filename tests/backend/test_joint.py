"""Gradients of largest elements: the backward compares with what the forward has stored."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy

from refold.backend import joint, refold
from refold.backend.joint import KeepsCompared, keep_compared

from .by_plan import by_plans
from .steps import all_ours, check, compiled, squares


def graph_of(function: Any) -> torch.fx.GraphModule:
    return make_fx(function)(torch.randn(3, 4))


def kept(module: torch.fx.GraphModule) -> list[str]:
    marked = CheckpointPolicy.MUST_SAVE
    return [n.name for n in module.graph.nodes if n.meta.get("recompute") == marked]


def test_what_is_compared_with_its_extremes_is_kept() -> None:
    found = graph_of(lambda x: ((y := x.sin()).amax(1, keepdim=True).expand(3, 4) == y).float())
    assert keep_compared(found.graph) == 1 and kept(found) == ["sin"]
    found = graph_of(lambda x: ((y := x.cos()) == y.min()).float())
    assert keep_compared(found.graph) == 1 and kept(found) == ["cos"]


def test_what_is_compared_with_others_is_not() -> None:
    for function in (
        lambda x: (x.sin() == x.cos().amax(1, keepdim=True)).float(),
        lambda x: (x.sin() == 0).float(),
        lambda x: (x.sin() > x.sin().amax(1, keepdim=True)).float(),
    ):
        found = graph_of(function)
        assert keep_compared(found.graph) == 0 and not kept(found)


def test_a_pass_of_the_users_comes_first_and_caches_know_both() -> None:
    class Mine:
        def __init__(self) -> None:
            self.seen = 0

        def __call__(self, graph: torch.fx.Graph) -> None:
            self.seen += 1

    mine = Mine()
    keeps = KeepsCompared(mine)
    keeps(graph_of(torch.sin).graph)
    assert mine.seen == 1
    KeepsCompared([mine, mine])(graph_of(torch.sin).graph)
    assert mine.seen == 3
    assert keeps.uuid() is None  # a pass without a name keeps graphs out of caches
    assert KeepsCompared().uuid() is not None


class Attention(nn.Module):
    """Of places, by the mean and the largest of their channels. Those are cheap to compute anew."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 24, 3, padding=1), nn.Conv2d(24, 7, 1)
        self.norm = nn.InstanceNorm2d(24, affine=True)
        self.w, self.b = nn.Parameter(torch.ones(24)), nn.Parameter(torch.zeros(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        normed = self.w[:, None, None] * ((x - mean) / torch.sqrt(spread + 1e-6))
        h = F.gelu(normed + self.b[:, None, None])
        h = h + torch.relu(self.norm(h))
        both = torch.cat([h.mean(1, True), h.amax(1, True)], 1)
        return self.last(h * torch.sigmoid(both.sum(1, True)))


def test_gradients_of_the_largest_channel_are_eagers() -> None:
    torch.manual_seed(0)
    module, x = Attention(), torch.randn(4, 3, 48, 40)
    fast = torch.compile(module, backend="refold")
    wanted = torch.autograd.grad(module(x).square().sum(), list(module.parameters()))
    got = torch.autograd.grad(fast(x).square().sum(), list(module.parameters()))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


class Queue(nn.Module):
    """Keys of batches before; the newest stand in the place of the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.register_buffer("keys", torch.randn(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        scores = y @ self.keys.clone().detach()
        with torch.no_grad():
            self.keys[:, :3] = y[:3].t()
        return scores.logsumexp(1).mean()


@pytest.mark.parametrize("ours", (True, False))
def test_the_backward_reads_what_the_forward_has_written_over(ours: bool) -> None:
    """Under torch.compile it reads what the forward has written."""
    model = Queue()
    with by_plans():
        made = compiled if ours else functools.partial(torch.compile, backend=refold)
        check(model, [[torch.randn(4, 6)] for _ in range(3)], squares, made, kept=None)


def test_what_is_written_and_not_needed_later_is_not_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = []
    own = joint.keep_written
    monkeypatch.setattr(joint, "keep_written", lambda graph: copies.append(own(graph)))
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh())
    with by_plans(), all_ours():
        compiled(model)(torch.randn(4, 6)).sum().backward()
        compiled(Queue())(torch.randn(4, 6)).sum().backward()
    assert copies == [0, 1]


class Queued(nn.Module):
    """It compares with a clone of its queue, which the loop writes before the backward comes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 8)
        self.register_buffer("queue", torch.randn(8, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) @ self.queue.clone().detach()


def test_a_clone_is_as_it_was_when_the_backward_comes() -> None:
    model, x = Queued(), torch.randn(4, 16)
    fast, found = torch.compile(model, backend=refold), []
    for called in (model, fast):
        model.zero_grad()
        queue = model.queue.clone()
        loss = called(x).square().sum()
        model.queue[:, :4] = 7.0
        loss.backward()
        model.queue.copy_(queue)
        found.append(model.linear.weight.grad.clone())
    torch.testing.assert_close(*found)
