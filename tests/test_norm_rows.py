"""Norms of rows that are equal, nearly equal, far from zero, huge and tiny: as values allow.

A row is known to a unit in the last place of its largest value, u. What is centred may lie 2 u off,
not more, however many values a mean is taken of.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from test_equal_rows import Program
from test_models import written
from tests.emulator.test_modules import built_for_emulator

EPS = 1e-5
VALUES = (1.0, 0.1, -0.3, 1 / 3, 3.14159, -7.7, 255.0, 1e-3, 1234.567, -31415.9)


def by_hand(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred / ((centred**2).mean(1, keepdim=True) + EPS).sqrt()


def by_variance(x: torch.Tensor) -> torch.Tensor:
    mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True)
    return (x - mean) * torch.rsqrt(var + EPS)


def over_deviation(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + EPS)


def var_mean(x: torch.Tensor) -> torch.Tensor:
    var, mean = torch.var_mean(x, 1, keepdim=True, correction=0)
    return (x - mean) / (var + EPS).sqrt()


def instances(x: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(x[:, None], eps=EPS)[:, 0]


def groups(x: torch.Tensor) -> torch.Tensor:
    both = F.group_norm(torch.stack([x, x.flip(1)], 1), 2, eps=EPS)
    return (both[:, 0] + both[:, 1].flip(1)) / 2


def images(x: torch.Tensor) -> torch.Tensor:
    parts = F.instance_norm(torch.stack([x, x], 1)[:, :, :, None], eps=EPS)
    return parts[:, 1, :, 0]


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:], eps=EPS),
    "layer norm of two axes": lambda x: F.layer_norm(
        torch.stack([x, x], 1), (2, x.shape[1]), eps=EPS
    )[:, 0],
    "by hand": by_hand,
    "by variance": by_variance,
    "over the deviation": over_deviation,
    "variance and mean": var_mean,
    "instance norm": instances,
    "group norm": groups,
    "instance norm of images": images,
}


def batch_norm(x: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, training=True, eps=EPS)


def rows(width: int) -> torch.Tensor:
    """Equal, equal but one, 1e4 deviations from zero, and of all sizes."""
    some = torch.Generator().manual_seed(width)
    equal = torch.tensor(VALUES)[:, None].expand(-1, width).clone()
    but_one = equal.clone()
    but_one[:, width // 3] *= 1 + 2**-20
    far = torch.randn(8, width, generator=some) + 1e4 * torch.randn(8, 1, generator=some).sign()
    scales = torch.tensor([2.0**-80, 2.0**-30, 2.0**-10, 2.0**10, 2.0**30, 2.0**55])[:, None]
    sized = torch.randn(6, width, generator=some) * scales
    return torch.cat([equal, but_one, far, sized])


def check(fast: nn.Module, module: nn.Module, width: int, name: str) -> None:
    down = name == "batch norm"
    x = rows(width)
    given = x.T.contiguous() if down else x
    with torch.no_grad():
        got, truth = fast(given).double(), module(given.double())
    if down:
        got, truth = got.T, truth.T
    x = x.double()
    unit = x.abs().amax(1) * torch.finfo(torch.float32).eps
    variance = x.var(1, correction=0)
    apart = name == "over the deviation"
    deviation = variance.sqrt() + EPS if apart else (variance + EPS).sqrt()
    bar = 2 * unit / deviation + 8 * torch.finfo(torch.float32).eps * truth.abs().amax(1)
    error = (got - truth).abs().amax(1)
    equal = len(VALUES)
    assert (error[:equal] <= 1e-9).all(), f"rows of equal values: {error[:equal]}"
    assert (error <= bar).all(), f"rows of {width}: {(error / bar).nan_to_num(99.0)}"


@pytest.mark.parametrize("name", [*PROGRAMS, "batch norm"])
def test_kernels_of_the_cpu(name: str) -> None:
    down = name == "batch norm"
    module = Program(batch_norm if down else PROGRAMS[name]).eval()
    example = torch.randn(112, 34) if down else torch.randn(34, 112)
    fast = refold.optimize(module, example, measure=False)
    for width in (112, 7, 1000, 9000):
        check(fast, copy.deepcopy(module), width, name)
    assert refold.status(fast).fast


@pytest.mark.parametrize("name", ["layer norm", "group norm"])
def test_kernels_of_cuda(name: str) -> None:
    module = Program(PROGRAMS[name]).eval()
    _, fast = built_for_emulator(written(module, [torch.randn(34, 112)], "cuda:sm_90"))
    for width in (112, 7, 130):
        check(fast, copy.deepcopy(module), width, name)


def test_long_rows_of_cuda() -> None:
    module = Program(PROGRAMS["layer norm"]).eval()
    _, fast = built_for_emulator(written(module, [torch.randn(34, 9000)], "cuda:sm_90"))
    check(fast, module, 9000, "layer norm")


def test_the_model_that_was_not_kept() -> None:
    """Behind a norm whose eps makes a last digit 316 times as large."""
    norm = nn.LayerNorm(112)
    module = nn.Sequential(norm, nn.Tanh()).eval()
    fast = refold.optimize(module, torch.randn(64, 112), measure=False)
    x = torch.randn(64, 1).expand(64, 112).contiguous()
    with torch.no_grad():
        assert fast(x).abs().max() == 0.0


def test_squares_that_overflow_make_no_nan() -> None:
    """The mean's rounding, squared, overflows where they do."""
    module = Program(PROGRAMS["layer norm"]).eval()
    fast = refold.optimize(module, torch.randn(16, 40), measure=False)
    x = torch.randn(16, 40)
    x[:, 7] = 3e38 / torch.arange(1, 17)
    with torch.no_grad():
        assert torch.equal(fast(x).isnan(), module(x).isnan())


def test_an_infinite_mean_is_infinite() -> None:
    module = Program(lambda x: torch.cat([x.mean(1), x.var(1)])).eval()
    x = torch.randn(16, 40)
    x[3, 5] = float("inf")
    x[4, 6] = float("-inf")
    x[5, 7] = float("nan")
    fast = refold.optimize(module, torch.randn(16, 40), measure=False)
    torch.testing.assert_close(fast(x), module(x), equal_nan=True)
