"""The arguments on which ours and Inductor's are timed."""

from __future__ import annotations

import pytest
import torch

from refold.backend import timing

from .test_accurate import boxed, graph


def products(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(40):  # of positive numbers they would be out of range after 25
        x = x @ w
    return x


@pytest.mark.parametrize("function", [products, lambda x, w: (x @ w.abs()).sqrt()])
def test_results_are_finite_where_they_can_be(function) -> None:  # type: ignore[no-untyped-def]
    """What is not may be computed once more by kernels, which took 200 times as long."""
    module = graph(function, torch.randn(64, 64), torch.randn(64, 64))
    names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    given = timing._given(boxed(function), module, names[1:])
    assert [tuple(g.shape) for g in given] == [(64, 64), (64, 64)]
    assert function(*given).isfinite().all()


def test_arguments_of_which_none_gives_numbers_are_taken_as_they_are() -> None:
    module = graph(lambda x: x / 0, torch.ones(4))
    assert len(timing._given(boxed(lambda x: x / 0), module, ())) == 1
