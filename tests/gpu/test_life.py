"""Writes to parameters on a GPU: at the next call where the host can know, one call later else."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import refold
from refold import introspect, twin

pytestmark = pytest.mark.gpu
WIDTH = 64


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 96), nn.BatchNorm1d(96), nn.ReLU())
        self.head = nn.Linear(96, WIDTH)

    def forward(self, x):
        return self.head(self.body(x)).sum(dim=1, keepdim=True)


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    x = torch.randn(16, WIDTH, device="cuda")
    return refold.optimize(Net().cuda(), x, measure=False)


@pytest.fixture
def fast(made):
    module = copy.deepcopy(made)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    x = torch.randn(7, WIDTH, device="cuda")
    with torch.no_grad():
        module.eval()(x)
        assert introspect.fallback_reason(module, [x]) is None
    return module


def close(fast) -> bool:
    x = torch.randn(9, WIDTH, device="cuda")
    with torch.no_grad():
        expected = copy.deepcopy(twin.original(fast)).double()(x.double())
        got = fast(x)
        assert introspect.fallback_reason(fast, [x]) is None
        return torch.allclose(got.double(), expected, rtol=1e-3, atol=1e-3)


def trained(make: Callable[..., torch.optim.Optimizer], through=lambda m: m):
    def step(m):
        optimizer = make(m.parameters())
        m.train()
        through(m)(torch.randn(8, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        m.eval()

    return step


def moved(m):
    m.train()
    m(torch.randn(32, WIDTH, device="cuda") * 3 + 1)
    m.eval()


def twice_assigned(m):
    m.head.weight.data = torch.randn_like(m.head.weight)
    m.head.weight.data = torch.randn_like(m.head.weight)


def swapped(m):
    torch.utils.swap_tensors(m.head.weight, nn.Parameter(torch.randn_like(m.head.weight)))


def state(m, by=2.0):
    return {k: v * by if v.is_floating_point() else v for k, v in m.state_dict().items()}


def averaged(m):
    average = AveragedModel(nn.Linear(1, 1), multi_avg_fn=get_ema_multi_avg_fn(0.5))
    average.module = twin.original(m)
    average.n_averaged += 1  # the first time copies, and that is counted
    other = copy.deepcopy(average.module)
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(2.0)
    average.update_parameters(other)


AT_ONCE: dict[str, Callable[[nn.Module], object]] = {
    "SGD": trained(lambda p: torch.optim.SGD(p, 0.1)),
    "fused AdamW": trained(lambda p: torch.optim.AdamW(p, 0.1, fused=True)),
    "foreach AdamW": trained(lambda p: torch.optim.AdamW(p, 0.1, foreach=True)),
    "through the original": trained(lambda p: torch.optim.SGD(p, 0.1, fused=True), twin.original),
    "statistics": moved,
    "statistics through the original": lambda m: moved(twin.original(m)),
    "load_state_dict": lambda m: m.load_state_dict(state(m)),
    "load_state_dict, assign": lambda m: m.load_state_dict(state(m), assign=True),
    "one element, counted": lambda m: torch.no_grad()(m.head.weight[3, 4].fill_)(50.0),
    "data =, twice": twice_assigned,
    "swap_tensors": swapped,
    "an average": averaged,
}


def flat(m):
    views = parameters_to_vector(m.parameters()).detach().clone()
    vector_to_parameters(views, m.parameters())
    close(m)
    views.mul_(1.5)


def by_graph(m):
    """An optimizer's step, replayed: no hook runs."""
    x = torch.randn(8, WIDTH, device="cuda")
    optimizer = torch.optim.AdamW(m.parameters(), 0.05, fused=True, capturable=True)
    original = twin.original(m).eval()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            optimizer.zero_grad()
            original(x).square().mean().backward()
            optimizer.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        original(x).square().mean().backward()
        optimizer.step()
    close(m), close(m)
    graph.replay()


LATE: dict[str, Callable[[nn.Module], object]] = {
    "data.mul_": lambda m: m.head.weight.data.mul_(1.5),
    "foreach on data": lambda m: torch._foreach_mul_([p.data for p in m.parameters()], 1.5),
    "running_var.data": lambda m: m.body[1].running_var.data.mul_(3),
    "F.batch_norm": lambda m: nn.functional.batch_norm(
        torch.randn(32, 96, device="cuda") * 4,
        m.body[1].running_mean,
        m.body[1].running_var,
        training=True,
    ),
    "views of one flat buffer": flat,
    "an optimizer in a graph": by_graph,
}


@pytest.mark.parametrize("name", AT_ONCE)
def test_followed_at_the_next_call(fast, name):
    assert close(fast)
    AT_ONCE[name](fast)
    assert close(fast)


@pytest.mark.parametrize("name", LATE)
def test_followed_one_call_later(fast, name, caplog):
    assert close(fast)
    LATE[name](fast)
    close(fast)  # may be computed from the old values
    torch.cuda.synchronize()
    assert close(fast)
    assert any("does not count" in m for m in caplog.messages)


def test_calls_wait_for_nothing(fast):
    """No call synchronises: a kernel that runs long does not hold up the host."""
    x = torch.randn(9, WIDTH, device="cuda")
    big = torch.randn(8192, 8192, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            fast(x)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(5):
                big = big @ big * 1e-4
            event = torch.cuda.Event()
            event.record()
            fast(x)
            assert not event.query(), "the call waited"
        finally:
            torch.cuda.set_sync_debug_mode("default")
