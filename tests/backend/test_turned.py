"""Arguments whose dimensions lie in another order than their own, as a backward is given many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from engine.test_lifetimes import as_on_a_gpu
from refold.backend import graphs
from refold.backend.loaded import load
from refold.backend.options import BackendOptions


def text_of(function: Callable[..., Any], *given: torch.Tensor, hopper: bool = False) -> str:
    graph = make_fx(function)(*given).graph
    if hopper:
        derived = graphs.derive(as_on_a_gpu(graph), BackendOptions(target="cuda:sm_90"))
    else:
        derived = graphs.derive(graph, BackendOptions())
    return derived.text()


def scaled(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [torch.relu(x * 2 + 1) * y]


LAID = [
    torch.randn(6, 8).mT,
    torch.randn(2, 3, 4, 5).permute(0, 2, 1, 3),
    torch.randn(3, 1, 4).permute(2, 1, 0),
    torch.randn(8, 12)[:, :6],  # with gaps
    torch.randn(6).expand(8, 6),
    torch.randn(2, 5, 4, 3).permute(0, 3, 1, 2),  # an image, its channels last
]


@pytest.mark.parametrize("x", LAID, ids=lambda x: f"{tuple(x.shape)}-{x.stride()}")
def test_results_are_right_however_arguments_lie(x: torch.Tensor) -> None:
    """As in the example, and otherwise."""
    y = torch.randn(x.shape)
    call = load(text_of(scaled, x, y))
    for given in (
        x,
        x.contiguous(),
        x.contiguous().mT.contiguous().mT,
        torch.stack([x, y], -1)[..., 0],
    ):
        (found,) = call([given, y])
        torch.testing.assert_close(found, scaled(given, y)[0])


@pytest.mark.parametrize("turns", [True, False])
def test_only_what_is_turned_is_named(turns: bool) -> None:
    x = torch.randn(6, 8).mT if turns else torch.randn(8, 6)
    text = text_of(scaled, x, torch.randn(8, 6))
    assert ("x_1 = x_1.permute((1, 0))" in text) == turns
    assert "y_1 = y_1.permute" not in text


def shown(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [x.permute(1, 0, 2), torch.relu(x * 2 + 1) * y]


def written(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    made = torch.relu(x * 2 + 1) * y
    x.copy_(made)
    return [made * 2]


@pytest.mark.parametrize("function", [shown, written])
def test_what_is_written_or_given_back_is_spoken_of_as_it_is_given(
    function: Callable[..., Any],
) -> None:
    x, y = torch.randn(4, 2, 8).permute(1, 0, 2), torch.randn(2, 4, 8)
    mine, theirs = x.clone(), x.clone()
    assert mine.stride() == x.stride()
    text = text_of(function, x.clone(), y)
    assert "x_1 = x_1.permute" not in text
    for a, b in zip(load(text)([mine, y]), function(theirs, y), strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    torch.testing.assert_close(mine, theirs)


def gradient_of_weight(x_turned: torch.Tensor, g: torch.Tensor) -> list[torch.Tensor]:
    return [x_turned @ g]


def test_the_transpose_of_what_was_saved_is_not_laid_out_anew() -> None:
    """Kernels for Hopper split it as it lies: the product x^T g of a linear layer's weight."""
    x, g = torch.randn(4096, 256), torch.randn(4096, 512)
    text = text_of(gradient_of_weight, x.mT, g, hopper=True)
    assert "x_turned_1_packed = _refold_pack_transposed(x_turned_1)" in text
