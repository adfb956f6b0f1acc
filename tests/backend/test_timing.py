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
    given = timing._given(boxed(function), module, names[1:])
    assert [tuple(g.shape) for g in given] == [(64, 64), (64, 64)]
    assert function(*given).isfinite().all()


def test_arguments_of_which_none_gives_numbers_are_taken_as_they_are() -> None:
    module = graph(lambda x: x / 0, torch.ones(4))
    assert len(timing._given(boxed(lambda x: x / 0), module, ())) == 1


def test_gradients_that_come_in_are_small_where_they_grow_out_of_range() -> None:
    def backward(saved: torch.Tensor, tangents_1: torch.Tensor) -> torch.Tensor:
        return tangents_1 * (saved.square() + 1) * 1e30 * 1e9

    module = graph(backward, torch.randn(8), torch.randn(8))
    for node, name in zip(list(module.graph.nodes), ("saved", "tangents_1"), strict=False):
        node.name = name
    saved, incoming = timing._given(boxed(backward), module, ())
    assert (
        backward(saved, incoming).isfinite().all()
        and incoming.abs().max() < 1e-15 < saved.abs().max()
    )
