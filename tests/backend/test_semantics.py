"""Training behind the backend is training: each way in which PyTorch's users call a model."""

from __future__ import annotations

import copy
import functools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from refold.backend import refold
from refold.backend.report import collected

from .by_plan import by_plans
from .steps import all_ours, check, compiled


class Mlp(nn.Module):
    def __init__(self, width: int = 32, out: int = 8) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(16, width), nn.BatchNorm1d(width)
        self.second = nn.Linear(width, out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.gelu(self.norm(self.first(x))))


def batch(rows: int = 24, width: int = 16, seed: int = 0, wanted: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator).requires_grad_(wanted)


def test_steps_of_a_model_with_batch_norm() -> None:
    """Values, gradients, running statistics and parameters over several steps; three graphs, and
    the one that no gradient is wanted of."""
    model = Mlp()
    found = check(model, [[batch(seed=i, wanted=True)] for i in range(3)])
    assert [g.kind for g in found] == ["forward", "backward"]
    assert all(g.share == 1 for g in found)


def test_a_new_batch_size_compiles_nothing() -> None:
    """With sizes that vary one graph each way serves all of them.

    Of two rows batch norm makes much of rounding: PyTorch's calls and Inductor are off as we are.
    """
    calls = [[batch(rows, seed=rows)] for rows in (24, 24, 40, 7, 2)]
    torch._dynamo.utils.counters.clear()
    made = functools.partial(compiled, dynamic=True, fullgraph=True)
    found = check(Mlp(), calls, made=made, yardstick=True)
    assert [g.kind for g in found] == ["forward", "backward"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2  # ours, and the yardstick's


def test_sizes_become_free_when_they_first_vary() -> None:
    found = check(Mlp(), [[batch(rows, seed=rows)] for rows in (24, 24, 40, 7, 24)])
    assert [g.kind for g in found] == ["forward", "backward"] * 2


class Broken(nn.Module):
    """Two graphs, keyword arguments, and a weight that is tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner = nn.Linear(16, 16, bias=False), nn.Linear(16, 16)
        self.head = nn.Linear(16, 16)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor, *, scale: float = 1.0, mask: torch.Tensor | None = None):
        y = torch.tanh(self.embed(x))
        torch._dynamo.graph_break()
        y = self.inner(y) * scale
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        return {"logits": self.head(y), "hidden": y}


def test_graph_breaks_keywords_and_tied_weights() -> None:
    mask = torch.zeros(24, 16, dtype=torch.bool)
    mask[:, 3] = True

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Broken()

        def forward(self, x: torch.Tensor):
            return self.inner(x, scale=0.5, mask=mask)

    found = check(Called(), [[batch(seed=i)] for i in range(2)])
    assert [g.kind for g in found].count("forward") == 2


def test_frozen_parts_and_hooks() -> None:
    def halves(result: torch.Tensor) -> torch.Tensor:
        return result.double()[:, ::2].sum() + result.double().t()[0].square().sum()

    found = check(_Hooked(), [[batch(seed=i)] for i in range(2)], loss=halves)
    assert found[0].by == "refold"


class _Hooked(nn.Module):
    """A part without gradients, and a hook on a module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Mlp()
        self.inner.first.requires_grad_(False)
        self.inner.norm.register_forward_hook(_plus_one)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def _plus_one(module: nn.Module, args: object, result: torch.Tensor) -> torch.Tensor:
    return result + 1


@pytest.mark.parametrize("kind", ["expanded", "strided", "one of several"])
def test_incoming_gradients(kind: str) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Mlp()

        def forward(self, x: torch.Tensor):
            y = self.inner(x)
            return y, torch.tanh(y)

    def loss(result: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        first, second = result
        if kind == "expanded":
            return first.sum() + second.sum()
        if kind == "strided":
            other = torch.linspace(0, 1, first.numel()).view(first.shape[1], -1).t()
            return (first * other).sum() + (second.t() * other.t()).sum()
        return second.square().sum()

    check(Two(), [[batch(seed=i, wanted=True)] for i in range(2)], loss=loss)


def test_without_gradients() -> None:
    """no_grad, inference_mode and eval each have a graph; updates are followed at once."""
    model = Mlp()
    fast = compiled(model)
    with all_ours(), collected() as found:
        for _ in range(2):
            for mode in (torch.no_grad, torch.inference_mode):
                with mode():
                    for training in (True, False):
                        model.train(training)
                        other = copy.deepcopy(model)
                        torch.testing.assert_close(fast(batch()), other(batch()))
            with torch.no_grad():
                for p in model.parameters():
                    p.data.mul_(1.5)  # uncounted
    assert {g.kind for g in found} == {"inference"} and all(g.by == "refold" for g in found)


def test_autocast() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
    other = copy.deepcopy(model)
    results = []
    with all_ours():
        for m, run in ((model, compiled(model)), (other, other)):
            with torch.autocast("cpu", torch.bfloat16):
                y = run(batch())
            assert y.dtype == torch.bfloat16
            y.float().square().sum().backward()
            results.append([y.float(), *(p.grad for p in m.parameters())])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=3e-2, atol=3e-2 * theirs.abs().max().item())


@pytest.mark.parametrize("first", (False, True))
def test_what_has_the_negative_bit_is_what_it_stands_for(first: bool) -> None:
    """As the imaginary part of a conjugate has: minus what its memory holds. Of arguments, of
    parameters and of gradients that come in; before and behind calls without."""
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
    other, results = copy.deepcopy(model), []
    negative = torch._neg_view(torch.randn(12, 16)), torch._neg_view(torch.randn(12, 8))
    plain = torch.randn(12, 16), torch.randn(12, 8)
    pairs = [(x, g) for x in (plain[0], negative[0]) for g in (plain[1], negative[1])]
    with by_plans(), all_ours(), collected() as found:
        for m, run in ((model, compiled(model)), (other, other)):
            seen = []
            for x, gradient in pairs[:: -1 if first else 1]:
                with torch.no_grad():
                    seen.append(run(x))
                x = x.clone().detach().requires_grad_() if not x.is_neg() else x.requires_grad_()
                x.grad = None
                run(x).backward(gradient)
                seen += [x.grad, *(p.grad.clone() for p in m.parameters())]
            m[0].weight.data = torch._neg_view(torch.ones(32, 16))
            results.append([*seen, run(plain[0])])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert {g.by for g in found} == {"refold", "pytorch"}


class Dropped(nn.Module):
    def __init__(self, drawn: bool = True) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)
        self.drawn = drawn

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(F.gelu(self.first(x)), 0.5, self.drawn)
        return self.second(y)


def test_random_numbers_are_those_of_torch_compile() -> None:
    model, x = Dropped(), batch()
    drawn = []
    with all_ours():
        for run in (compiled(model), torch.compile(copy.deepcopy(model))):
            torch.manual_seed(3)
            drawn += [[run(x), run(x)]]
    for mine, theirs in zip(*drawn, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not torch.equal(drawn[0][0], drawn[0][1])


def test_checkpoints() -> None:
    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # without statistics, which eager updates once more when it computes again
            parts = (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in "ab")
            self.blocks = nn.ModuleList(parts)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return x

    check(Saved(), [[batch(seed=i)] for i in range(2)], kept=None)


def test_gradients_are_accumulated_and_retained() -> None:
    model = Mlp()
    other = copy.deepcopy(model)
    for run in (compiled(model), other):
        with all_ours():
            for i in range(2):
                value = run(batch(seed=i)).square().mean()
                value.backward(retain_graph=True)
                value.backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)


def test_what_is_retained_is_not_written_over() -> None:
    """Several losses of one result, each with its backward, where the graphs are Inductor's and
    the first backward retained nothing."""
    rest = nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)
    model = nn.Sequential(nn.Linear(12, 16), *rest)
    other = copy.deepcopy(model)
    with collected() as found:
        for run in (compiled(model), other):
            for last in (0, 2):
                result = run(batch(8, 12))
                for k in range(last + 1):
                    result[:, k].mean().backward(retain_graph=k < last)
    assert {g.by for g in found} == {"inductor"}
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-7)


def test_what_is_written_to_an_argument() -> None:
    """Buffers that the graph counts, fills, and adds to, one of them the other way round."""

    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 16)
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("other", torch.zeros(16, 16).t())
            self.register_buffer("last", torch.randn(24, 16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.inner(x)
            self.count += 1
            with torch.no_grad():
                self.other.add_(y.t() @ y)
                self.last.copy_(torch.relu(y))
            return y * 2

    check(Written(), [[batch(seed=i)] for i in range(3)], kept=None)


def test_a_model_that_dynamo_cannot_trace_runs() -> None:
    class Wild(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.sum().item() > 0:  # a break in the middle of a branch
                return self.inner(x)
            return -self.inner(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(Wild(), [[batch(seed=i)] for i in range(2)], kept=None)


def test_an_unknown_option_is_refused() -> None:
    fast = torch.compile(Mlp(), backend=lambda m, i: refold(m, i, options={"fast": True}))
    with pytest.raises(Exception, match="unknown option 'fast'; the options are target, float32"):
        fast(batch())
