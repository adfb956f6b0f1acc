"""The arguments on which ours and Inductor's are timed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from refold.backend import timing

from .test_accurate import boxed, graph


def products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(40):  # of positive numbers they would be out of range after 25
        x = x @ w
    return x


@pytest.mark.parametrize("function", [products, lambda x, w: (x @ w.abs()).sqrt()])
def test_results_are_finite_where_they_can_be(function: Callable[..., torch.Tensor]) -> None:
    """What is not may be computed once more by kernels, slowly."""
    module = graph(function, torch.randn(64, 64), torch.randn(64, 64))
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    given = timing._given(boxed(function), module, names[1:]).values
    assert [tuple(g.shape) for g in given] == [(64, 64), (64, 64)]
    assert function(*given).isfinite().all()


def test_arguments_of_which_none_gives_numbers_are_taken_as_they_are() -> None:
    module = graph(lambda x: x / 0, torch.ones(4))
    assert len(timing._given(boxed(lambda x: x / 0), module, ()).values) == 1


def test_gradients_that_come_in_are_small_where_they_grow_out_of_range() -> None:
    def backward(saved: torch.Tensor, tangents_1: torch.Tensor) -> torch.Tensor:
        return tangents_1 * (saved.square() + 1) * 1e30 * 1e9

    module = graph(backward, torch.randn(8), torch.randn(8))
    for node, name in zip(list(module.graph.nodes), ("saved", "tangents_1"), strict=False):
        node.name = name
    saved, incoming = timing._given(boxed(backward), module, ()).values
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
    given = timing._given(boxed(counted), module, ())
    assert any(n.target is timing.COPY for n in module.graph.nodes)
    assert not given.spoiled
