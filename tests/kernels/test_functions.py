"""Functions of float lanes (kernels/cpu/functions.h) beside float64, on numbers of every size."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from kernels.test_cpu_product import module
from kernels.test_vectors import OURS, SPECIAL

BODIES = (Path(__file__).parent / "functions.cpp").read_text()
LEAST = 2.0**-126  # units of numbers below it are all of one size
# the errors that are allowed, in units of the last place
ALLOWED = {"exp": 2, "expm1": 2, "log1p": 2, "tanh": 2, "erf": 5, "sigmoid": 3, "mish": 4}
ALLOWED |= {
    "gelu": 64
}  # where it is 1e-34; x * x is rounded, and e to the power of it multiplies that
# where what is left is too small to matter: exp(-x) overflows in the sigmoid, before it is zero; of
# gelu PyTorch's doubles leave nothing
LOWEST = {"sigmoid": -87.0, "mish": -87.0, "gelu": -8.29}


def numbers() -> torch.Tensor:
    """Every 16,001st float, those where functions begin to overflow or to vanish, and what is
    special."""
    every = torch.arange(-(2**31), 2**31, 16001, dtype=torch.int64).to(torch.int32)
    ends = torch.tensor(
        [88.37, 88.72, 88.7228, 88.73, 89.0, -87.3, -88.0, 3.83, 3.9, -1.0001, 20.0]
    )
    near = torch.linspace(-5, 5, 20001)
    return torch.cat([every.view(torch.float32), ends, -ends, near, torch.tensor(SPECIAL)])


def truths(x: torch.Tensor) -> dict[str, torch.Tensor]:
    names = ("exp", "expm1", "log1p", "tanh", "erf", "sigmoid")
    return {n: getattr(torch, n)(x) for n in names} | {
        "mish": F.mish(x),
        "gelu": 0.5 * x * torch.special.erfc(-x * math.sqrt(0.5)),
    }


def units(made: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Errors in units of the last place; where one side is not finite, or zero of another sign, and
    the other is not: infinitely many."""
    rounded = truth.float()
    whole = truth.abs().clamp(min=LEAST).log2().floor().clamp(max=127) - 23
    found = (made.double() - truth).abs() / torch.exp2(whole)
    alike = torch.where(rounded.isfinite(), math.nan, rounded)
    other = (made.isnan() != truth.isnan()) | (made.isinf() != rounded.isinf())
    other |= made.isinf() & (made != alike)
    other |= (truth == 0) & ((made != 0) | (made.signbit() != truth.signbit()))
    found = torch.where(rounded.isfinite(), found, 0.0)
    return torch.where(other, math.inf, found)


@pytest.mark.parametrize("level", OURS)
@pytest.mark.parametrize("defines", [[], ["#define RF_VECTORS"]], ids=["ours", "pytorchs"])
def test_functions_are_accurate(level: str, defines: list[str]) -> None:
    kernels = module(level, BODIES, defines, ["run.h", "narrow.h" if defines else "lanes.h"])
    x = numbers()
    out = torch.empty(len(ALLOWED), len(x))
    kernels.functions(x.data_ptr(), out.data_ptr(), len(x))
    for made, (name, truth) in zip(out, truths(x.double()).items(), strict=True):
        kept = ~(x < LOWEST.get(name, -math.inf))
        found = units(made[kept], truth[kept])
        worst = found.argmax()
        assert found[worst] <= ALLOWED[name], (name, x[kept][worst].item(), found[worst].item())
        assert (made[~kept].abs().nan_to_num(0.0) < 1e-33).all()
        if name == "gelu":  # as accurate as PyTorch's where that does not cancel
            assert found[x[kept].abs() < 0.7].max() <= 2


@pytest.mark.parametrize(
    ("made", "truth"),
    [(math.nan, 1.0), (1.0, math.nan), (math.inf, -math.inf), (0.0, -0.0), (1.0, 1.0 + 2.0**-21)],
)
def test_what_differs_is_told(made: float, truth: float) -> None:
    given = torch.tensor([truth], dtype=torch.float64)
    assert units(torch.tensor([made]), given) > 2
    assert units(given.float(), given).item() == 0
