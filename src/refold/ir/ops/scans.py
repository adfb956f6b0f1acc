"""Ops along one axis that leave the shape unchanged."""

from __future__ import annotations

from typing import Any

from refold.ir import shapes
from refold.ir.bounds import within
from refold.ir.op import Flops, Kind, Op


def _scan(name: str, **facts: Any) -> Op:
    meaning = f"torch.{name}({{0}}, {{axis}})"
    return Op(name, Kind.SCAN, meaning, shapes.same, 1, ("axis",), **facts)


ROWS = (
    _scan("softmax", aten=("softmax", "_softmax"), bounds=within(0.0, 1.0), flops=Flops(18)),
    _scan(
        "log_softmax",
        aten=("log_softmax", "_log_softmax"),
        bounds=within(high=0.0),
        passes_infinity=True,
        flops=Flops(18),
    ),
    _scan("cumsum", aten=("cumsum",), linear_in=((0,),), passes_infinity=True),
)
