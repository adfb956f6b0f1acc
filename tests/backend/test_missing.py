"""Gradients of results that a loss does not use: what only they need has none, as in eager."""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor.utils import fresh_cache

from refold.backend import choose, kept, without
from refold.backend.kept import key_of
from refold.backend.missing import Gradients
from refold.backend.report import collected
from refold.backend.without import Whole

from .by_plan import by_plans
from .steps import all_ours, check, compiled

Results = Sequence[torch.Tensor]


@pytest.fixture
def by_plan() -> Iterator[None]:
    with by_plans(), all_ours():
        yield


class Heads(nn.Module):
    """Four results: a head, another, what is computed of that, and one whose slope has no end."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.first, self.second, self.third = nn.Linear(16, 4), nn.Linear(16, 3), nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = torch.relu(self.body(x))
        second = self.second(h)
        return self.first(h), second, self.third(second), torch.relu(second).sqrt()


LOSSES: dict[str, Callable[[Results], torch.Tensor]] = {
    "first": lambda r: r[0].square().mean(),
    "second": lambda r: r[1].square().mean(),
    "third": lambda r: r[2].square().mean(),
    "first and third": lambda r: r[0].mean() + r[2].square().mean(),
    "second and third": lambda r: r[1].sum() * r[2].mean(),
}


@pytest.mark.usefixtures("by_plan")
@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_steps_of_training(loss: Callable[[Any], torch.Tensor], dynamic: bool) -> None:
    calls = [[torch.randn(6 + dynamic * i, 8, requires_grad=True)] for i in range(3)]
    found = check(Heads(), calls, loss, made=functools.partial(compiled, dynamic=dynamic))
    assert [g.kind for g in found] == ["forward", "backward", "backward"]
    assert found[2].flops <= found[1].flops


@pytest.mark.usefixtures("by_plan")
def test_losses_in_turn() -> None:
    """Each pattern has its own graph, and the whole one is still there."""
    whole = LOSSES["first"], LOSSES["third"], lambda r: sum(v[:, :1].mean() for v in r[:3])
    model = Heads()
    other, run = copy.deepcopy(model), compiled(model)
    for loss in (*whole, *whole):
        x = torch.rand(6, 8) + 1
        for side, made in ((model, run), (other, other)):
            side.zero_grad()
            loss(made(x)).backward()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if p.grad is not None:
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("by_plan")
def test_the_graph_is_kept_for_another_backward() -> None:
    model = Heads()
    first, *_ = compiled(model)(torch.randn(6, 8))
    first.sum().backward(retain_graph=True)
    assert model.body.weight.grad is not None
    once = model.body.weight.grad.clone()
    first.sum().backward()
    torch.testing.assert_close(model.body.weight.grad, 2 * once)
    assert model.second.weight.grad is None


@pytest.mark.usefixtures("by_plan")
def test_no_gradient_comes_at_all() -> None:
    """A function behind it may give none for what it was given."""

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, *come: Any) -> Any:
            return None

    model = Heads()
    first, second, *_ = compiled(model)(torch.randn(6, 8))
    nothing: Any = Nothing.apply
    (nothing(first).sum() + nothing(second).sum()).backward()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.usefixtures("by_plan")
def test_hooks_are_given_tensors() -> None:
    """Autograd calls them with None where no gradient comes, which eager does not."""
    model, x = Heads(), torch.randn(6, 8, requires_grad=True)
    before = x * 2
    seen: list[Any] = []
    before.register_hook(seen.append)
    for parameter in model.parameters():
        parameter.register_hook(seen.append)
        parameter.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))
    compiled(lambda x, y: (model(x)[0], y * 3))(before.detach(), before)[0].sum().backward()
    assert len(seen) > 4 and all(isinstance(g, torch.Tensor) for g in seen)


@pytest.mark.usefixtures("by_plan")
def test_compiled_autograd_takes_them_all() -> None:
    from torch._dynamo import compiled_autograd

    model = Heads()
    first, *_ = compiled(model)(torch.randn(6, 8))
    with compiled_autograd._enable(torch.compile(backend="eager")):
        first.sum().backward()
    assert model.body.weight.grad is not None and model.body.weight.grad.abs().max() > 0
    assert model.third.weight.grad is None or not model.third.weight.grad.any()


@pytest.mark.usefixtures("by_plan")
def test_threads_compile_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's compilers bear no other way."""
    results = [compiled(Heads())(torch.randn(6, 8))[0].sum() for _ in range(2)]
    inside, together = [0], []
    compile_one = without.Backward.compile

    def slowly(source: without.Backward, missing: frozenset[int]) -> Any:
        inside[0] += 1
        together.append(inside[0])
        time.sleep(0.2)
        made = compile_one(source, missing)
        inside[0] -= 1
        return made

    monkeypatch.setattr(without.Backward, "compile", slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(torch.Tensor.backward, results))
    assert together == [1, 1]


class Image(nn.Module):
    """Two results of a convolution, whose channels lie last."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.beside = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.layer(x).relu() * 2
        return made, self.beside(made).tanh()


@pytest.mark.usefixtures("by_plan")
@pytest.mark.parametrize("used", (0, 1))
def test_zeros_stand_where_nothing_else_can(
    used: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*args: Any) -> Any:
        raise Whole("it is refused")

    monkeypatch.setattr(without, "without", refused)
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    with caplog.at_level(logging.WARNING, "refold"):
        check(Image(), [[x], [x]], lambda r: r[used].square().mean())
    assert "Whole: it is refused" in caplog.text


@pytest.mark.usefixtures("by_plan")
def test_images_with_their_channels_last() -> None:
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    for used in (0, 1):
        check(Image(), [[x], [x]], lambda r, used=used: r[used].square().mean())


def test_another_process_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph without them is found where it was kept, and where it was not, it is made: timed
    and measured on what its forward saves, which is kept, too. What PyTorch makes of a graph that
    it read from disk may have another key."""
    keys = itertools.count()

    def other_key(options: Any, module: Any, inputs: Any, given: Any) -> Any:
        key = key_of(options, module, inputs, given)
        places = module.graph.find_nodes(op="placeholder")
        incoming = sum(map(without.is_incoming, places))
        return (f"{key[0]}{next(keys)}", key[1]) if incoming == 1 and key is not None else key

    monkeypatch.setattr(kept, "key_of", other_key)
    model, x = Heads(), torch.randn(6, 8)

    def step(name: str) -> list[torch.Tensor | None]:
        torch._dynamo.reset()  # as in another process
        model.zero_grad()
        LOSSES[name](compiled(model)(x)).backward()
        return [p.grad for p in model.parameters()]

    chosen = choose.chosen
    asked: list[Any] = []

    def noted(*args: Any) -> Any:
        asked.append(args[-1])
        return chosen(*args)

    monkeypatch.setattr(choose, "chosen", noted)
    with fresh_cache(), by_plans(), all_ours(), collected() as found:
        monkeypatch.setattr(kept, "load", choose.load)
        wanted = step("first")
        assert len(asked) == 3
        again = step("first")
        assert len(asked) == 3
        step("third")
        assert len(asked) == 4
        (forward, backward) = asked[-1], asked[1]
        assert forward is not None and forward.parameters == backward.parameters
        assert forward.saved("normal values", 0)
    assert [g.kept for g in found] == [False] * 3 + [True] * 5 + [False]
    for a, b in zip(wanted, again, strict=True):
        assert (a is None) == (b is None)
        assert a is None or b is None or torch.equal(a, b)


# --- the graph without them -----------------------------------------------------------------------
def left_of(function: Callable[..., Any], count: int, missing: Sequence[int]) -> list[str]:
    """The calls of what is left, and how many arguments and results that has. function: of `count`
    tensors, the first of which is no gradient."""
    from torch.fx.experimental.proxy_tensor import make_fx

    module = make_fx(function, tracing_mode="fake")(*torch.ones(count, 3, 2))
    for i, place in enumerate(module.graph.find_nodes(op="placeholder")):
        place._rename(f"tangents_{i}" if i else "primals_1")
    left, taken = without.without(module, missing)
    (final,) = left.graph.find_nodes(op="output")
    calls = [str(n.target) for n in left.graph.nodes if n.op == "call_function"]
    return [*calls, f"{len(taken)} to {len(final.args[0])}"]


def test_what_is_left_of_a_graph() -> None:
    """Of sums the other operand; of what only missing gradients make, nothing."""
    found = left_of(lambda x, a, b: [(a + b) * x, b * 3, x @ b.t()], 3, [2])
    assert found == ["aten.mul.Tensor", "2 to 1"]
    assert left_of(lambda x, a, b: [x @ (a + b).t()], 3, [1, 2]) == ["0 to 0"]


@pytest.mark.parametrize(
    "function",
    (
        lambda x, a, b: [torch.cat([a, b])],
        lambda x, a, b: [b - a],
        lambda x, a, b: [torch.where(x > 0, a, b)],
        lambda x, a, b: [a.t() + b.t().contiguous()],  # the operand lies otherwise than the sum
        lambda x, a, b: [torch.add(a, b, alpha=2)],
    ),
)
def test_what_takes_zeros(function: Callable[..., Any]) -> None:
    assert "aten.full.default" in left_of(function, 3, [1])


def test_a_graph_that_writes_takes_all() -> None:
    with pytest.raises(Whole, match="writes"):
        left_of(lambda x, a, b: [x.copy_(a), b], 3, [1])


def test_what_is_kept_of_it_can_be_read() -> None:
    """Of sizes that vary, only how zeros stand for what is missing."""
    seen: list[Gradients] = []
    gradients_of = without.gradients_of

    def noted(*args: Any) -> Gradients | None:
        made = gradients_of(*args)
        assert made is not None
        seen.append(made)
        return made

    with pytest.MonkeyPatch.context() as patch, by_plans(), all_ours():
        patch.setattr(without, "gradients_of", noted)
        for dynamic in (False, True):
            torch._dynamo.reset()
            first, *_ = compiled(Heads(), dynamic=dynamic)(torch.randn(6, 8))
            first.sum().backward()
        fixed, varying = (pickle.loads(pickle.dumps(g)) for g in seen)
        assert (fixed.places, fixed.needs) == (seen[0].places, seen[0].needs)
        assert varying.source is None and fixed.source is not None and seen[0].source is not None
        missing = frozenset(fixed.places[1:])
        assert fixed.source.compile(missing)[1] == seen[0].source.compile(missing)[1]


def test_a_graph_that_cannot_be_pickled_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled of all gradients is kept nevertheless."""
    from torch.fx._graph_pickler import GraphPickler

    def refused(*args: Any) -> bytes:
        raise TypeError("it cannot be pickled")

    seen: list[Gradients] = []
    gradients_of = without.gradients_of
    monkeypatch.setattr(
        without, "gradients_of", lambda *a: seen.append(gradients_of(*a)) or seen[-1]
    )
    with by_plans(), all_ours():
        compiled(Heads())(torch.randn(6, 8))[0].sum().backward()
    monkeypatch.setattr(GraphPickler, "dumps", refused)
    (left,) = (pickle.loads(pickle.dumps(g)) for g in seen)
    assert seen[0].source is not None
    assert left.source is None and left.needs == seen[0].needs
