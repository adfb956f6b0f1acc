"""Gradients that are differentiated in turn are PyTorch's own, of the graph as it was."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from refold.backend import refold, second

from .by_plan import by_plans
from .steps import all_ours, compiled

Called = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def without_kernels() -> Iterator[None]:
    with by_plans(), all_ours():
        yield


def batch(rows: int = 12, width: int = 16, seed: int = 0) -> torch.Tensor:
    made = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    return made.requires_grad_()


def derived(value: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(value, by, torch.ones_like(value), create_graph=True)
    return found


def penalty(run: Called) -> torch.Tensor:
    x = batch()
    score = run(x)
    slope = derived(score, x)
    return (slope.norm(dim=1) - 1).square().mean() + score.mean()


def equation(run: Called) -> torch.Tensor:
    """A third derivative, by a parameter, of a second one."""
    x = batch()
    u = run(x)
    first = derived(u, x)
    second = derived(first, x)
    return (second - 0.1 * first + u).square().mean()


def sharpness(run: Called) -> torch.Tensor:
    parameters = list(model_of(run).parameters())
    slopes = torch.autograd.grad(run(batch()).square().mean(), parameters, create_graph=True)
    return sum((s.square().sum() for s in slopes), torch.zeros(()))


def model_of(run: Called) -> nn.Module:
    found = getattr(run, "_orig_mod", run)
    assert isinstance(found, nn.Module)
    return found


def mlp(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), *between, nn.Tanh(), nn.Linear(32, 1))


@pytest.mark.parametrize("loss", (penalty, equation, sharpness))
def test_steps_of_training(loss: Callable[[Called], torch.Tensor]) -> None:
    model = mlp(nn.LayerNorm(32))
    other = copy.deepcopy(model)
    for _ in range(2):
        for one, run in ((model, compiled(model)), (other, other)):
            one.zero_grad()
            loss(run).backward()
            with torch.no_grad():
                for p in one.parameters():
                    p.sub_(p.grad, alpha=0.05)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


def spectral() -> nn.Module:
    norm = nn.utils.spectral_norm
    return nn.Sequential(norm(nn.Linear(16, 32)), nn.Tanh(), norm(nn.Linear(32, 1)))


def parametrized() -> nn.Module:
    norm = nn.utils.parametrizations.spectral_norm
    return nn.Sequential(norm(nn.Linear(16, 32)), nn.Tanh(), norm(nn.Linear(32, 1)))


def counting() -> nn.Module:
    """It reads and writes an average of its own, without which it is another function."""

    class Counting(nn.Module):
        average: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.ones(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.average.mul_(0.5).add_(x.detach().abs().mean(0))
            return x / self.average.clone()

    return mlp(Counting())


@pytest.mark.parametrize(
    "make", (lambda: mlp(nn.BatchNorm1d(32)), spectral, parametrized, counting)
)
def test_buffers_that_are_written_are_what_they_were(make: Callable[[], nn.Module]) -> None:
    """A critic of two batches and its penalty: what one call writes, the next one reads."""
    model = make()
    other = copy.deepcopy(model)
    run = compiled(model)
    for seed in range(3):
        for one, call in ((model, run), (other, other)):
            one.zero_grad()
            loss = call(batch(seed=seed)).mean() - call(batch(seed=seed + 10)).mean()
            (loss + penalty(call)).backward()
            with torch.no_grad():
                for p in one.parameters():
                    p.sub_(p.grad, alpha=0.02)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
        for p, q in zip(model.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-6)


def test_what_is_not_the_same_again_has_one_derivative() -> None:
    """The first is the compiled graph's, drawn once; the second PyTorch's error."""
    model = mlp(nn.Dropout(0.5))
    x = batch()
    slope = derived(compiled(model)(x), x)
    with pytest.raises(RuntimeError, match="double backward"):
        slope.square().sum().backward()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, come: torch.Tensor) -> torch.Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * come


@pytest.mark.parametrize("before", (Cube.apply, compiled(lambda x: x**3)))
def test_what_a_graph_hands_through_is_anothers(before: Called) -> None:
    """An argument among the results, as the parts of a graph under DistributedDataParallel may have
    it, has the node of who computed it."""
    x = batch()
    value = before(x)
    graph = torch.fx.symbolic_trace(lambda v: (v, v.sin()))
    handed, made = refold(graph, [value], options={"measure": False})(value)
    assert handed is value
    first = derived(handed, x)
    torch.testing.assert_close(first, 3 * x**2)
    torch.testing.assert_close(derived(first, x), 6 * x)
    torch.testing.assert_close(derived(made, x), 3 * x**2 * (x**3).cos())


def test_a_graph_without_gradients_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it writes is not known, and nobody will ask."""
    asked: list[Any] = []
    copies = second._copies
    monkeypatch.setattr(second, "_copies", lambda *a: asked.append(a[1]) or copies(*a))
    run = compiled(lambda x, y: (x * y).detach().sin())
    for _ in range(2):
        run(batch(), torch.ones(16))
    assert [*asked[1:]] == [()]


def test_what_was_written_since_is_an_error() -> None:
    model = mlp()
    x = batch()
    score = compiled(model)(x)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    with pytest.raises(RuntimeError):
        derived(score, x).square().sum().backward()


def test_nothing_is_held_behind_the_backward() -> None:
    """A loss that somebody keeps holds no arguments, as in eager."""
    x = torch.randn(12, 16)
    seen, loss = weakref.ref(x), compiled(mlp())(x).sum()
    loss.backward()
    del x
    gc.collect()
    assert seen() is None
