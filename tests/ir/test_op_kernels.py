"""The C++ of every row of the op table, against PyTorch: on the CPU and on the emulator.

One model holds all rows that kernels compute, so that each target compiles one library. An error is
judged beside eager's own against float64, as everywhere; NaN and infinities are compared by place.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from refold import introspect, pipeline
from refold.derive import Options
from refold.ir import OPS, Kind, Op
from tests.emulator.module import emulated

from .samples import ATTRIBUTES

KERNELS = [op for op in OPS.values() if op.cpp is not None and op.name != "cast"]
REDUCED = [op for op in OPS.values() if op.kind is Kind.REDUCE and op.reduction is not None]
SPECIAL = (0.0, -0.0, 1e-40, -1e-38, 1e-30, -1e-7, 3e38, -3e38, 1.0, -1.0, 0.5, -2.5, 88.8, -88.8)
SPECIAL += (19.999, 20.001, -104.0, math.inf, -math.inf, math.nan, 2.5, 3.5, -0.5, 16777217.0)


def _text(op: Op) -> str:
    """The op on x, y and the mask m, with attributes where it has some."""
    operands = ["m", "x", "y"] if op.name == "where" else ["x", "y"][: op.arity]
    attrs = {a: ATTRIBUTES[a][0] for a in op.attrs}
    if op.is_comparison:  # kernels store no mask
        return f"torch.where({op.torch_text(operands, attrs)}, x, y)"
    return op.torch_text(operands, attrs)


def _body(texts: Sequence[str]) -> str:
    return "def forward(self, x, y, m):\n    return (" + ", ".join(texts) + ")"


class Rows(nn.Module):
    """Every op with C++, of the same three operands."""

    ops = tuple(KERNELS)
    exec(_body([_text(op) for op in KERNELS]))


def _reduced(op: Op, axis: int) -> str:
    attrs: dict[str, Any] = {"axes": (axis,)} | (
        {"correction": 1} if "correction" in op.attrs else {}
    )
    return op.torch_text(["x"], attrs)


class Reductions(nn.Module):
    """Every op with a monoid, along rows and down columns."""

    ops = (*REDUCED, *REDUCED)
    exec(_body([_reduced(op, a) for a in (-1, -2) for op in REDUCED]).replace("x, y, m", "x"))


def _special() -> list[torch.Tensor]:
    """Every pair of special values, and ordinary ones behind them; no vector divides the width."""
    values = torch.tensor(SPECIAL)
    x, y = (v.flatten() for v in torch.meshgrid(values, values, indexing="ij"))
    more = torch.randn(2, 7 * 91 - len(x)) * 3
    x, y = torch.cat([x, more[0]]).reshape(7, 91), torch.cat([y, more[1]]).reshape(7, 91)
    return [x, y, (x > y) | x.isnan()]


def _rows() -> list[torch.Tensor]:
    """Ordinary rows, far from zero, of equal values, and some that hold what is not finite."""
    x = torch.randn(37, 91)
    x[1] += 1e4
    x[2] = 3.25
    x[3, 5], x[4, 90], x[5, 0] = math.nan, math.inf, -math.inf
    x[6] = -math.inf
    x[7] = 100.0
    return [x]


def _built(module: nn.Module, inputs: list[torch.Tensor], target: str) -> nn.Module:
    back, device = pipeline.target_for(target, "ieee")
    options = Options(measure=False, accuracy=False, strict=True)
    result = pipeline.run(module, inputs, "# Model is bound.", "Rows", back, device, options)
    assert result.text is not None, result.reasons
    for mode in result.modes:
        assert mode.plan is not None
        made = {n.op for g in mode.plan.groups for n in g.nodes}
        if isinstance(module, Rows):
            assert {op.name for op in KERNELS} <= made, "ops that no kernel computes"
        assert len(mode.plan.groups) >= 1
    text = result.text if target == "cpu" else emulated(result.text)
    return pipeline.bind_for_class(text, copy.deepcopy(module))


def _check(op: Op, made: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    # where PyTorch's own vectors overflow on the way (gelu of the largest floats), either is right
    sure = eager.isnan() == exact.isnan()
    agree = torch.equal(made.isnan()[sure], eager.isnan()[sure])
    assert agree, f"{op.name}: NaN elsewhere than PyTorch's"
    infinite = eager.isinf() & exact.float().isinf()
    assert torch.equal(made[infinite], eager[infinite]), f"{op.name}: other infinities"
    known = eager.isfinite()
    if op.is_exact:
        # PyTorch's own vectors of square roots err in the last bit on some processors
        right = (made == eager) | (made == exact.to(made.dtype))
        assert right[known].all(), f"{op.name}: other bits"
        return
    error, own = ((v[known].double() - exact[known]).abs() for v in (made, eager))
    bar = 8 * own + 4e-6 * exact[known].abs() + 1e-37
    worst = (error - bar).argmax() if known.any() else 0
    assert (error <= bar).all(), f"{op.name}: {made[known][worst]} for {exact[known][worst]}"


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("kind", [Rows, Reductions], ids=["pointwise", "reductions"])
def test_kernels_compute_what_torch_does(kind: type[Any], target: str) -> None:
    torch.manual_seed(0)
    module = kind()
    inputs = _special() if kind is Rows else _rows()
    fast = _built(module, inputs, target)
    double = [i.double() if i.is_floating_point() else i for i in inputs]
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        results = zip(kind.ops, fast(*inputs), module(*inputs), module(*double), strict=True)
        wrong = []
        for i, (op, made, eager, exact) in enumerate(results):
            how = op.reduction
            if target != "cpu" and i >= len(REDUCED) and how is not None and how.state_of:
                # Read from the state of a variance, it is NaN where a column holds an infinity:
                # parts are merged by the difference of their means.
                assert made.isnan().equal(eager.isnan() | eager.isinf())
                eager, exact = (torch.where(v.isinf(), math.nan, v) for v in (eager, exact))
            try:
                _check(op, made, eager, exact)
            except AssertionError as error:
                wrong.append(str(error).splitlines()[0])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("kind", [Rows, Reductions], ids=["pointwise", "reductions"])
def test_in_float64_no_number_is_shorter(kind: type[Any], target: str) -> None:
    """A constant of float's digits in a kernel would cost half of all digits."""
    torch.manual_seed(0)
    module, x, y = kind(), *(torch.randn(2, 7, 91, dtype=torch.float64) * 3)
    inputs = [x, y, x > y] if kind is Rows else [x]
    fast = _built(module, inputs, target)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        wrong = {}
        for op, made, eager in zip(kind.ops, fast(*inputs), module(*inputs), strict=True):
            assert made.dtype == eager.dtype and made.isnan().equal(eager.isnan())
            lost = (made - eager).abs() - 1e-13 - 1e-12 * eager.abs()
            if (lost[~eager.isnan()] > 0).any():
                wrong[op.name] = lost.nan_to_num().max()
    assert not wrong
