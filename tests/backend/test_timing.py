"""The arguments on which ours and Inductor's are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from refold.backend import compile as backend
from refold.backend import timing
from refold.backend.arguments import AsRecorded, Forward, examples, places_of
from refold.backend.options import BackendOptions

from .test_accurate import boxed, graph


def products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(40):  # of positive numbers they would be out of range after 25
        x = x @ w
    return x


def made_of(
    module: torch.fx.GraphModule, parameters: Sequence[str] = (), inputs: Sequence[Any] = ()
) -> timing._Examples:
    return timing._Examples(module, parameters, None, inputs)


def test_arguments_lie_as_inductor_is_told_that_they_do() -> None:
    """It spreads the rows of what a forward saves, and its backward asks for these strides."""
    module = graph(lambda x, y: x * y, torch.randn(4, 3, 49), torch.randn(4, 3, 49))
    spread = torch.empty_strided((4, 3, 49), (192, 64, 1))
    found = timing._given(boxed(module), made_of(module, (), [spread, torch.randn(4, 3, 49)]))
    assert [v.stride() for v in found.values] == [(192, 64, 1), (147, 49, 1)]
    assert torch.equal(found.values[0], timing._given(boxed(module), made_of(module)).values[0])


def test_a_view_is_rehearsed_of_what_lies_with_gaps() -> None:
    module = graph(lambda x: x.view(-1)[torch.tensor([3])], torch.arange(12.0).reshape(3, 4))
    spread = torch.empty_strided((3, 4), (8, 1)).copy_(torch.arange(12.0).reshape(3, 4))
    with pytest.raises(RuntimeError, match="view"):
        module(spread)
    assert AsRecorded(module).run(spread)[0] == 3


@pytest.mark.parametrize("function", [products, lambda x, w: (x @ w.abs()).sqrt()])
def test_results_are_finite_where_they_can_be(function: Callable[..., torch.Tensor]) -> None:
    """What is not may be computed once more by kernels, slowly."""
    module = graph(function, torch.randn(64, 64), torch.randn(64, 64))
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    given = timing._given(boxed(function), made_of(module, names[1:])).values
    assert [tuple(g.shape) for g in given] == [(64, 64), (64, 64)]
    assert function(*given).isfinite().all()


def test_arguments_of_which_none_gives_numbers_are_taken_as_they_are() -> None:
    module = graph(lambda x: x / 0, torch.ones(4))
    assert len(timing._given(boxed(lambda x: x / 0), made_of(module)).values) == 1


def test_gradients_that_come_in_are_small_where_they_grow_out_of_range() -> None:
    def backward(saved: torch.Tensor, tangents_1: torch.Tensor) -> torch.Tensor:
        return tangents_1 * (saved.square() + 1) * 1e30 * 1e9

    module = graph(backward, torch.randn(8), torch.randn(8))
    for node, name in zip(list(module.graph.nodes), ("saved", "tangents_1"), strict=False):
        node.name = name
    saved, incoming = timing._given(boxed(backward), made_of(module)).values
    assert (
        backward(saved, incoming).isfinite().all()
        and incoming.abs().max() < 1e-15 < saved.abs().max()
    )


def test_what_a_call_writes_over_is_there_again_for_the_next() -> None:
    """Inductor's backward takes the memory of what was saved for it."""

    def backward(saved: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return saved.square() * other

    module = graph(backward, torch.randn(64), torch.randn(64))
    seen: list[float] = []

    def spoils(args: list[torch.Tensor]) -> list[torch.Tensor]:
        saved, beside = args
        seen.append(float(saved.abs().max()))
        return [saved.square_().mul_(1e12).mul_(beside)]

    def ours(args: list[torch.Tensor]) -> list[torch.Tensor]:
        seen.append(float(args[0].abs().max()))
        return [backward(*args)]

    timing.timed(ours, spoils, module, ())
    assert len(seen) > 6 and len(set(seen)) == 1
    seen.clear()
    timing.timed(spoils, ours, module, ())  # parts of ours in a graph that Inductor compiles
    assert len(seen) > 6 and len(set(seen)) == 1


def test_what_a_graph_says_that_it_writes_is_not_put_back() -> None:
    def counted(count: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        count.copy_(count + 1)
        return x * 2

    module = graph(counted, torch.zeros(1), torch.randn(8))
    given = timing._given(boxed(counted), made_of(module))
    assert any(n.target is timing.COPY for n in module.graph.nodes)
    assert not given.spoiled


# --- inside of a compilation ----------------------------------------------------------------------
class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(32, 96) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            q, k, v = part(x).view(2, 64, 3, 2, 16).permute(2, 0, 3, 1, 4)
            x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 64, 32) + x
        return x


Seen = Callable[[torch.fx.GraphModule, "Forward | None"], None]


def chosen_for(patch: pytest.MonkeyPatch, *all_seen: Seen) -> None:
    """Train a model of attention; each of `all_seen` gets each graph, and the forward of a
    backward."""
    from refold.backend import choose

    def chosen(
        options: BackendOptions,
        module: torch.fx.GraphModule,
        inputs: Any,
        given: Any,
        forward: Forward | None,
    ) -> Any:
        for seen in all_seen:
            seen(module, forward)
        return before(BackendOptions(measure=False), module, inputs, given, forward)

    before = choose.chosen
    patch.setattr(choose, "chosen", chosen)
    torch._dynamo.reset()
    model = Attention()
    compiled: Any = torch.compile(model, backend=backend.refold)
    with torch.compiler.config.patch(force_disable_caches=True):
        compiled(torch.randn(2, 64, 32, requires_grad=True)).sum().backward()


@dataclass
class Trained:
    """saved: the largest results of a backward's graph, given what its forward saved or drawn by
    themselves. asked: whether PyTorch asks Python of each operator while a graph is chosen, and
    that and whether gradients are wanted where it is timed."""

    saved: dict[bool, list[float]] = field(default_factory=dict)
    asked: list[tuple[bool, bool, bool]] = field(default_factory=list)


@pytest.fixture(scope="module")
def trained() -> Trained:
    """What is seen in one training, which is compiled once for all that look at it."""
    found = Trained()
    key = torch._C.DispatchKey.PythonDispatcher
    included = torch._C._dispatch_tls_is_dispatch_key_included

    def run(module: torch.fx.GraphModule, forward: Forward | None) -> None:
        if forward is None:
            return
        with timing.as_called():
            for own in (True, False):
                given = next(examples(module, (), forward if own else None))
                assert len(given) == len(places_of(module))
                results = torch.fx.Interpreter(module).run(*given)
                found.saved[own] = [float(r.abs().max()) for r in results if r is not None]

    def timed(module: torch.fx.GraphModule, forward: Forward | None) -> None:
        def compare(*args: Any) -> None:
            found.asked.append((asked, included(key), torch.is_grad_enabled()))
            raise RuntimeError("seen")

        asked = included(key)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(RuntimeError, match="seen"):
            patch.setattr(timing, "compare", compare)
            timing.timed(boxed(module), boxed(module), module, (), forward)
        assert included(key) == asked

    with pytest.MonkeyPatch.context() as patch:
        chosen_for(patch, run, timed)
    return found


def test_what_a_forward_saves_belongs_together(trained: Trained) -> None:
    """Scores, and the sums of their exponentials, of attention: drawn by themselves, gradients grow
    in each layer until nothing is finite, which kernels compute once more, slowly."""
    assert max(trained.saved[True]) < 1e6 < max(trained.saved[False])


def test_a_forward_that_cannot_be_run_is_told(caplog: pytest.LogCaptureFixture) -> None:
    module = graph(torch.linalg.cholesky, torch.eye(4))  # of what is drawn there is none
    with caplog.at_level("INFO", logger="refold"):
        assert Forward(module, ()).saved("normal values", 0) == {}
    assert "drawn by themselves" in caplog.text


def test_calls_are_timed_as_they_are_behind_a_compilation(trained: Trained) -> None:
    """PyTorch asks Python of each operator while it compiles, which timed many kernels as slow."""
    assert trained.asked[0] == (True, False, False)  # a backward may be compiled when it is called
    assert [state[1:] for state in trained.asked] == [(False, False)] * 2
