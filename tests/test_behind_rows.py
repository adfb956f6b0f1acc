"""What follows from rows that a view made is computed with them, unless that would write more."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import refold
from agree import check_values
from captures import captured_as
from refold import pipeline
from refold.derive import Options, derive

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Of(nn.Module):
    def __init__(self, *functions: Function) -> None:
        super().__init__()
        self.functions = functions
        self.w = nn.Parameter(torch.rand(16, 1, 1) + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f(x, self.w) for f in self.functions)


def by_views(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    n, c, h, v = x.shape
    return torch.softmax(x.clamp(0, 1).view(n, c, -1), 2).view(n, c, h, v) * w


def twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x + F.instance_norm(torch.relu(F.instance_norm(x) * w))


WITH_ROWS: dict[str, Function] = {
    "instance norm": lambda x, w: F.instance_norm(x) * w,
    "and what follows": lambda x, w: torch.relu(F.instance_norm(x) * w + 1) + x,
    "softmax between views": by_views,
    "all of an image": lambda x, w: torch.relu(F.layer_norm(x, x.shape[1:])) + x,
    "again and again": twice,
}
APART: dict[str, Function] = {  # kernels that read them compute them
    "pooled": lambda x, w: F.max_pool2d(torch.relu(F.instance_norm(x)), 2),
    "largest of the channels": lambda x, w: (F.instance_norm(x) * w).amax(1),
    "norm of groups": lambda x, w: F.group_norm(x, 4, w[:, 0, 0], w[:, 0, 0]),
}


def kernels(function: Function, target: str) -> list[str]:
    _, device = pipeline.target_for(target)
    options = Options(measure=False, accuracy=False)
    torch.manual_seed(0)
    with captured_as(function):
        (found,) = derive(Of(function), [torch.randn(8, 16, 40, 40)], device, options)
    assert found.mode.plan is not None
    return [g.family for g in found.mode.plan.groups]


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("case", WITH_ROWS)
def test_what_follows_from_rows_is_computed_with_them(case: str, target: str) -> None:
    found = kernels(WITH_ROWS[case], target)
    assert set(found) == {"rows"} and len(found) <= 2


@pytest.mark.parametrize("case", APART)
def test_what_other_kernels_compute_in_passing_stays_theirs(case: str) -> None:
    found = kernels(APART[case], "cuda:sm_90")
    assert found[0] == "rows" and found[-1] != "rows"


def test_values_are_those_of_the_original() -> None:
    torch.manual_seed(0)
    module = Of(*WITH_ROWS.values(), *APART.values()).eval()
    x = torch.randn(8, 16, 40, 40)
    fast = refold.optimize(module, x, measure=False)
    for given in (x, torch.randn(3, 16, 21, 33) * 3 + 100):
        with torch.no_grad():
            truth = copy.deepcopy(module).double()(given.double())
            for got, eager, exact in zip(fast(given), module(given), truth, strict=True):
                check_values(got, eager, exact)
