"""Gradients that are differentiated in turn are PyTorch's own, of the graph as it was."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

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


@pytest.mark.parametrize("between", (nn.Dropout(0.5), nn.BatchNorm1d(32)))
def test_what_is_not_the_same_again_has_one_derivative(between: nn.Module) -> None:
    """The first is the compiled graph's, drawn and written once; the second PyTorch's error."""
    model = mlp(between)
    other = copy.deepcopy(model)
    slopes = []
    for run in (compiled(model), torch.compile(other, backend="aot_eager")):
        x = batch()
        torch.manual_seed(1)
        slopes.append(derived(run(x), x))
        with pytest.raises(RuntimeError, match="double backward"):
            slopes[-1].square().sum().backward()
    if not isinstance(between, nn.Dropout):  # which is drawn by Inductor
        torch.testing.assert_close(*slopes)
    for p, q in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(p, q)


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
