"""Rows of equal values where nothing is added before a division: as float64 has them.

Eager's own answer there is a matter of the order in which it adds (docs/accuracy.md). In float64
sums of such rows are exact, in whatever order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from refold.ir import Graph, Kind, as_scalar, make
from refold.ir.graph import Output
from refold.ir.node import leaf
from refold.planner.spreads import exact_spreads
from test_models import written
from tests.emulator.test_modules import built_for_emulator
from tests.ir.samples import SAMPLES, Sample


class Program(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def centred(x: torch.Tensor, dim: int | tuple[int, ...] = 1) -> torch.Tensor:
    return x - x.mean(dim, keepdim=True)


def standardised(x: torch.Tensor, dim: int | tuple[int, ...] = 1) -> torch.Tensor:
    return centred(x, dim) / x.std(dim, keepdim=True)


def by_hand(x: torch.Tensor) -> torch.Tensor:
    return centred(x) / centred(x).square().mean(1, keepdim=True).sqrt()


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "standardised": standardised,
    "standardised by a root": lambda x: centred(x) * x.var(1, keepdim=True, correction=0).rsqrt(),
    "standardised by hand": by_hand,
    "over the deviation": lambda x: x / x.std(1, keepdim=True),
    "mean over deviation": lambda x: x.mean(1) / x.std(1),
    "logarithm of the deviation": lambda x: x.std(1).log(),
    "mean absolute deviation": lambda x: centred(x) / centred(x).abs().sum(1, keepdim=True),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[1],), eps=0.0),
    "range": lambda x: (x - x.amin(1, keepdim=True)) / (x.amax(1) - x.amin(1))[:, None],
    "norm": lambda x: x / x.norm(dim=1, keepdim=True),
    "several axes": lambda x: standardised(torch.stack([x, x.flip(1)], 1), (1, 2))[:, 0],
}
DOWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "standardised columns": lambda x: standardised(x, 0),
    "columns over the deviation": lambda x: x / x.var(0, correction=0).sqrt(),
}
VALUES = (0.0, 1.0, 0.1, -0.3, 1 / 3, 3.14159, 1e4 + 0.1, -7.7, 0.7, 255.0, 1e-3)


def rows(width: int) -> torch.Tensor:
    """Of equal values, one for each of VALUES, among others."""
    x = torch.randn(2 * len(VALUES), width, generator=torch.Generator().manual_seed(width))
    x[::2] = torch.tensor(VALUES)[:, None]
    return x


def check(fast: nn.Module, module: nn.Module, width: int, down: bool = False) -> None:
    x = rows(width)
    with torch.no_grad():
        got, truth = (
            fast(x.T.contiguous() if down else x),
            module(x.T.double() if down else x.double()),
        )
    if down:
        got, truth = got.T, truth.T
    for value, a, b in zip(VALUES, got[::2], truth[::2], strict=True):
        torch.testing.assert_close(
            a.double(), b, rtol=1e-5, atol=1e-6, equal_nan=True, msg=f"rows of {value}: {a} for {b}"
        )
    torch.testing.assert_close(got[1::2].double(), truth[1::2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*PROGRAMS, *DOWN])
def test_kernels_of_the_cpu(name: str) -> None:
    down = name in DOWN
    module = Program({**PROGRAMS, **DOWN}[name]).eval()
    fast = refold.optimize(
        module, torch.randn(96, 22) if down else torch.randn(22, 96), measure=False
    )
    for width in (96, 5, 130, 5000):
        check(fast, copy.deepcopy(module), width, down)


@pytest.mark.parametrize("name", ["standardised", "over the deviation", "standardised columns"])
def test_kernels_of_cuda(name: str) -> None:
    down = name in DOWN
    module = Program({**PROGRAMS, **DOWN}[name]).eval()
    example = torch.randn(96, 22) if down else torch.randn(22, 96)
    _, fast = built_for_emulator(written(module, [example], "cuda:sm_90"))
    for width in (96, 5, 130):
        check(fast, copy.deepcopy(module), width, down)


def test_long_rows_of_cuda_are_read_in_one_pass() -> None:
    module = Program(standardised).eval()
    _, fast = built_for_emulator(written(module, [torch.randn(22, 8213)], "cuda:sm_90"))
    check(fast, module, 8213)


def test_what_is_added_before_a_division_makes_it_unneeded() -> None:
    def exact(*parts: str) -> bool:
        x = leaf("input", (1, 1, 1, 8, 40), torch.float32, name="x", index=0)
        mean, var = make("mean", x, axes=(-1,)), make("var", x, axes=(-1,), correction=0)
        eps = as_scalar(1e-5, torch.float32)
        ends = {
            "eps": make("rsqrt", make("add", var, eps)),
            "none": make("rsqrt", var),
            "root then eps": make("div", x, make("add", make("sqrt", var), eps)),
            "returned": var,
            "spread of parts": make(
                "reciprocal", make("sum", make("abs", make("sub", x, mean)), axes=(-1,))
            ),
        }
        return bool(exact_spreads(Graph(tuple(Output(ends[p], (8, 40)) for p in parts))))

    assert [exact(p) for p in ("eps", "root then eps", "returned")] == [False] * 3
    assert [exact(p) for p in ("none", "spread of parts")] == [True] * 2
    assert exact("eps", "none")


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.op.kind is Kind.POINTWISE], ids=str)
def test_zeros_are_followed_through_each_op(sample: Sample) -> None:
    """Where a mask or a whole number is an operand, too."""
    for place, of in enumerate(sample.operands):
        if of.is_float:
            spread = make("sub", of, make("mean", of, axes=(-1,)))
            inputs = [spread if i == place else o for i, o in enumerate(sample.operands)]
            node = make(sample.op.name, *inputs, **sample.attrs)
            exact_spreads(Graph((Output(node, tuple(node.shape)),)))
