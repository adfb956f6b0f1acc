"""Modules that draw random numbers in what kernels compute: the very ones that eager draws."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from calling import DEVICE, fast_of
from captures import captured_as
from refold import introspect, pipeline
from refold.capture import Example, capture
from refold.derive import Options, derive
from refold.ir.evaluate import evaluate
from refold.ir.graph import draws_of, is_parametric
from refold.plan import ExternCall
from refold.plan.reference import run_plan


class Does(nn.Module):
    """A map, and a function of what it gives."""

    def __init__(self, then: Callable[[Does, torch.Tensor], Any], width: int = 8) -> None:
        super().__init__()
        self.map, self.out = nn.Linear(8, 16), nn.Linear(16, width)
        self.one, self.two = nn.Dropout(0.3), nn.Dropout(0.6)
        self.written, self.all = nn.Dropout(0.2, inplace=True), nn.Dropout(1.0)
        self.maps, self.alpha = nn.Dropout2d(0.4), nn.AlphaDropout(0.25)
        self.then = [then]

    def forward(self, x: torch.Tensor) -> Any:
        return self.then[0](self, self.map(x))


def _chain(m: Does, y: torch.Tensor) -> torch.Tensor:
    for drop in (m.one, m.two, m.one):
        y = torch.relu(drop(y) * 2 + 1)
    return m.out(y)


def _of_one_shape(m: Does, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = y.view(-1, 2, 2, 4)
    return m.maps(z).sigmoid(), z + 1


TAKEN: dict[str, Callable[[Does, torch.Tensor], Any]] = {
    "of a module": lambda m, y: torch.softmax(m.one(y), -1),
    "between maps": lambda m, y: m.out(m.one(torch.relu(y))),
    "after each other": _chain,
    "twice of one value": lambda m, y: m.one(y) - m.one(y),
    "side by side": lambda m, y: (m.two(y).exp(), m.one(y + 1).sum(-1)),
    "the later is read first": lambda m, y: (lambda a, b: (b.relu(), a + b))(m.one(y), m.two(y)),
    "by function": lambda m, y: F.dropout(y, 0.5, True) * 2,
    "by function in a mode": lambda m, y: F.dropout(y, training=m.training) * 2,
    "in place": lambda m, y: m.written(y * 2) + 1,
    "of whole channels": _of_one_shape,
    "that keeps moments": lambda m, y: m.alpha(y) * 2,
    "of everything": lambda m, y: m.one(y) + m.all(y),
    "by hand": lambda m, y: y * torch.empty_like(y).bernoulli_(0.7) / 0.7,
    "of whole samples": lambda m, y: y * y.new_empty(y.shape[0], 1).bernoulli_(0.5) + y,
    "of a weight": lambda m, y: F.linear(y, F.dropout(m.out.weight, 0.5)).relu(),
    "of a sum that is not kept": lambda m, y: m.one(y) * 0 + y,
    "of what is a view": lambda m, y: m.one(y.reshape(-1, 4, 4)).exp(),
    "of doubles": lambda m, y: m.one(y.double()).exp().float(),
    "of halves": lambda m, y: (m.one(y.half()) * 2).float(),
}


def _agree(fast: nn.Module, module: nn.Module, x: torch.Tensor, taken: bool = True) -> None:
    """Calls, among other draws, under one seed: what is drawn, and where the generator stands."""
    found, states = [], []
    for one in (module, fast):
        torch.manual_seed(7)
        with torch.no_grad():
            results = [one(x), torch.rand(3), one(x), one(x)]
        found.append([t for r in results for t in (r if isinstance(r, tuple) else (r,))])
        states.append(torch.get_rng_state())
    with torch.no_grad():
        reason = introspect.fallback_reason(fast, (x,))
    assert (reason is None) == taken, reason
    assert torch.equal(*states)
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name", TAKEN)
def test_draws_are_eagers(name: str) -> None:
    torch.manual_seed(0)
    module = Does(TAKEN[name]).train()
    x = torch.randn(6, 8)
    before = torch.get_rng_state()
    with captured_as(("test_draws.py", name)):
        fast = fast_of(module, x)
    assert torch.equal(before, torch.get_rng_state())
    for n in (6, 9):
        _agree(fast.train(), module, torch.randn(n, 8))
    _agree(fast.eval(), copy.deepcopy(module).eval(), x)


class Net(nn.Module):
    """Images, statistics that are written, and two draws."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(
            *(nn.Linear(128, 32), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 32)),
            *(nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(32, 5)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.features(x), 1))


def test_kernels_compute_what_lies_between_draws() -> None:
    torch.manual_seed(0)
    module, x = Net().train(), torch.randn(4, 3, 8, 8)
    theirs = copy.deepcopy(module)
    fast = refold.optimize(module, x, measure=False)
    _agree(fast, theirs, x)
    status = refold.status(fast)
    assert status.fast, status.reason
    for a, b in zip(fast.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(a, b)


REFUSED: dict[str, tuple[Callable[[Does, torch.Tensor], Any], str]] = {
    "attention": (
        lambda m, y: F.scaled_dot_product_attention(*[y[None]] * 3, None, 0.5),
        "scaled_dot_product_attention",
    ),
    "noise": (lambda m, y: y + torch.randn_like(y), "aten.randn_like"),
    "a slope": (lambda m, y: F.rrelu(y, training=True) + 1, "aten.rrelu"),
    "odds of each": (lambda m, y: torch.bernoulli(y.sigmoid()) * y, "aten.bernoulli"),
    "another order": (lambda m, y: m.one(y.t() * 2) + 1, "row after row"),
    "nothing follows": (lambda m, y: (m.one(y), y.relu())[1], "nothing follows"),
    "nothing follows of the last": (lambda m, y: (m.one(y).relu(), m.two(y))[0], "nothing follows"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_draws_keep_the_original(name: str) -> None:
    then, reason = REFUSED[name]
    (mode, *_) = derive(
        Does(then), Example((torch.randn(6, 8),), {}), DEVICE, Options(measure=False)
    )
    assert mode.mode.kept is not None and reason in mode.mode.kept


class Ordered(nn.Module):
    """Whose draws follow the order in which its argument lies."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.scale = nn.Dropout(0.4), nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.one(x * self.scale + 1)) * 2


def test_what_draws_follow_is_looked_at_before_each_call() -> None:
    torch.manual_seed(0)
    module, x = Ordered().train(), torch.randn(6, 8)
    fast = fast_of(module, x)
    _agree(fast, module, x)
    _agree(fast, module, torch.randn(8, 6).t(), taken=False)  # it lies in another order
    fast.one.p = 0.1
    _agree(fast, module, x, taken=False)
    fast.one.p = 0.4
    _agree(fast, module, x)
    torch.manual_seed(1)
    drawn = fast(x)  # gradients are wanted
    torch.manual_seed(1)
    assert drawn.requires_grad and torch.equal(drawn, module(x))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_follow_their_weights(channels: int) -> None:
    """Those of one channel lie in any order, and tell it by their strides alone."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.ReLU()).train()
    x = torch.randn(2, channels, 7, 7)
    fast = fast_of(module, x)
    _agree(fast, module, x)
    weight, last = fast[0].weight.data, (9 * channels, 1, 3 * channels, channels)
    fast[0].weight.data = torch.empty_strided(weight.shape, last).copy_(weight)
    _agree(fast, module, x, taken=False)


def _modes(name: str, target: str = "cpu", accuracy: bool = False) -> Any:
    module = Does(TAKEN[name]).train()
    _, device = pipeline.target_for(target, "ieee")
    options = Options(measure=False, accuracy=accuracy)
    with captured_as(("test_draws.py", name)):
        found = derive(module, Example((torch.randn(6, 8),), {}), device, options)
    return module, found[0]


ON_CPU = ("the later is read first", "of whole channels", "of a weight")  # all are run above
PLANS = [*((name, "cuda:sm_90") for name in TAKEN), *((name, "cpu") for name in ON_CPU)]


@pytest.mark.parametrize(("name", "target"), PLANS)
def test_plans_draw_all_and_in_order(name: str, target: str) -> None:
    module, found = _modes(name, target)
    plan = found.mode.plan
    if name == "of a weight" and target != "cpu":  # which begins where it begins
        assert plan is None and "begins in memory" in found.mode.kept
        return
    assert plan is not None, found.mode.kept
    wanted = draws_of(found.mode.captured.graph.nodes())
    assert wanted == tuple(range(len(wanted))) and wanted
    calls = [s.node for s in plan.steps if isinstance(s, ExternCall)]
    assert draws_of(calls) == wanted
    assert not any(is_parametric(n) for n in calls if n.row.draws)
    assert not any(n.op == "kept" for n in calls)
    x = torch.randn(6, 8)
    named = {**dict(module.named_parameters()), "x": x}
    names = {n["name"] for n in plan.graph.nodes() if n.op == "input"}
    named |= dict.fromkeys(names, x)
    leaves = {n: named[n["name"]].detach() for n in plan.graph.nodes() if n.row.is_named}
    sizes = dict.fromkeys(found.mode.captured.symbol_sources(), x.shape[0])
    if target == "cpu":
        torch.manual_seed(3)
        made = run_plan(plan, leaves, sizes)
        torch.manual_seed(3)
        with torch.no_grad():
            result = module(x)
        for a, b in zip(made, result if isinstance(result, tuple) else (result,), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    else:
        run_plan(plan, leaves, sizes)


def test_a_gpu_draws_by_the_kernel_of_dropout() -> None:
    """And for what is done in place by another, as eager does."""
    for name, op in (("of a module", "kept_mask"), ("in place", "bernoulli")):
        _, found = _modes(name, "cuda:sm_90")
        calls = [s.node for s in found.mode.plan.steps if isinstance(s, ExternCall)]
        assert [n.op for n in calls if n.row.draws] == [op]


def test_what_is_compared_draws_alike() -> None:
    """The errors of a graph that draws are measured, and the graph as captured is run as it is."""
    module, found = _modes("after each other", accuracy=True)
    assert found.accuracy is not None and found.accuracy.skipped is None
    captured = capture(module, [x := torch.randn(6, 8)], training=True)
    values = {**dict(module.named_parameters()), "tensors[0]": x, "x": x}
    sizes = dict.fromkeys(captured.symbol_sources(), 6)
    torch.manual_seed(5)
    with torch.no_grad():
        (made,) = evaluate(captured.graph, values, sizes)
        torch.manual_seed(5)
        torch.testing.assert_close(made, module(x), rtol=1e-4, atol=1e-5)


def test_nothing_is_seeded_that_begins_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.manual_seed seeds a GPU once it is used, and what a program had seeded it with is
    gone."""
    later: list[object] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", later.append)
    monkeypatch.setattr(torch, "manual_seed", later.append)
    _, found = _modes("after each other", accuracy=True)
    assert found.accuracy is not None and not later
