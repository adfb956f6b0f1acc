"""Plans run by PyTorch alone give what the model gives: none forgets a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from captures import captured_once, drawn
from refold import pipeline
from refold.accuracy.samples import samples_of
from refold.capture import Example
from refold.derive import Options, derive
from refold.ir import leaf, make
from refold.ir.graph import Graph, Output
from refold.plan.reference import Incomplete, run_plan
from refold.planner import make_plan
from zoo import CASES

TARGETS = ("cpu", "cuda:sm_90")
# sizes that follow from values, which no sample can choose
UNMEASURED = ("Spectrum", "Diagonals")


def check(module: nn.Module, inputs: Sequence[Any], target: str) -> int:
    """Holds each mode's plan against float64; how many had one."""
    _, device = pipeline.target_for(target, "ieee")
    found = derive(module, inputs, device, Options(accuracy=False))
    plans = 0
    for d in found:
        if d.mode.plan is None or d.mode.captured is None:
            continue
        samples = samples_of(module, Example.of(inputs), d.mode.captured, d.mode.captured.graph)
        sample = samples.get("the example")
        assert sample is not None
        values = {(n.op, n["name"]): v for n, v in sample.leaves.items()}
        leaves = {n: values[n.op, n["name"]] for n in d.mode.plan.graph.nodes() if n.row.is_named}
        made = run_plan(d.mode.plan, leaves, sample.sizes)
        for got, truth in zip(made, sample.truth, strict=True):
            known = truth[truth.isfinite()].double().abs()
            eps = torch.finfo(got.dtype).eps if got.is_floating_point() else 0.0
            torch.testing.assert_close(
                got.double(),
                truth.double().reshape(got.shape),
                rtol=max(1e-4, eps),
                atol=max(1e-5, eps) * (known.max().item() if known.numel() else 1.0),
                equal_nan=True,
            )
        plans += 1
    return plans


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", [n for n in CASES if n not in UNMEASURED])
def test_plans_of_the_zoo(name: str, target: str) -> None:
    with captured_once():
        assert check(*drawn(name), target)


class RoundedForOne(nn.Module):
    """A value of which one reader wants 16 bits and another all."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(24, 40), nn.Linear(40, 8)
        self.narrow = nn.Linear(40, 12).bfloat16()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.fc(x))
        return self.head(y), self.narrow(y.bfloat16())


@pytest.mark.parametrize("target", TARGETS)
def test_what_others_read_whole_is_not_rounded(target: str) -> None:
    torch.manual_seed(0)
    assert check(RoundedForOne(), [torch.randn(32, 24)], target)


class Masked(nn.Module):
    """Results that tell of a value in the middle of what follows a product: masks of it."""

    def __init__(self, summed: bool) -> None:
        super().__init__()
        self.fc, self.summed = nn.Linear(24, 40), summed

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.fc(x)
        z = torch.nn.functional.leaky_relu(y, 0.2)
        return z.sum(dim=0) if self.summed else z, y > 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("summed", [False, True])
def test_a_value_that_a_mask_tells_of_is_stored(target: str, summed: bool) -> None:
    torch.manual_seed(0)
    assert check(Masked(summed), [torch.randn(32, 24)], target)


def test_a_plan_that_forgets_a_step_is_told() -> None:
    x = leaf("input", (8, 6), torch.float32, name="x")
    w = leaf("param", (4, 6), torch.float32, name="w")
    y = make("relu", make("linear", x, w))
    plan = make_plan(Graph((Output(make("sum", make("exp", y), axes=(-1,)), (8, 1)),)))
    values = {x: torch.randn(8, 6), w: torch.randn(4, 6)}
    (got,) = run_plan(plan, values, {})
    assert torch.allclose(got, (values[x] @ values[w].T).relu().exp().sum(1, keepdim=True))
    with pytest.raises(Incomplete, match="a result reads"):
        run_plan(replace(plan, steps=plan.steps[:-1]), values, {})
