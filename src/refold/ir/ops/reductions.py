"""Reductions; `axes` is a sorted tuple of negative ints, which are kept with size 1.

One that has a `Reduction` is computed by kernels of rows, columns and products; the others are
calls of PyTorch.
"""

from __future__ import annotations

from typing import Any

from refold.ir import bounds, shapes
from refold.ir.bounds import within
from refold.ir.op import Flops, Kind, Op, Reduction, Rounding


def _reduce(name: str, meaning: str, *more: str, **facts: Any) -> Op:
    attrs = ("axes", *more)
    infer = facts.pop("infer", shapes.reduced)
    return Op(name, Kind.REDUCE, meaning, infer, 1, attrs, **facts)


ROWS = (
    _reduce(
        "sum",
        "{0}.sum({axes}, keepdim=True)",
        aten=("sum",),
        reduction=Reduction("Sum", joined_by="add"),
        linear_in=((0,),),
        bounds=bounds.total,
        passes_infinity=True,
    ),
    _reduce(
        "mean",
        "{0}.mean({axes}, keepdim=True)",
        aten=("mean",),
        reduction=Reduction(
            "Sum", "{state} / {count}", state_of="var", result_there="{state}.mean"
        ),
        linear_in=((0,),),
        bounds=bounds.same,
        passes_infinity=True,
    ),
    _reduce(
        "prod",
        "torch.prod({0}, {axes}[0], keepdim=True)",
        infer=shapes.reduced_along_one,
        multiplies=True,
        passes_infinity=True,
    ),
    *(
        _reduce(
            name,
            f"{{0}}.a{name}({{axes}}, keepdim=True)",
            aten=(f"a{name}",),
            rounding=Rounding.NONE,
            reduction=Reduction(monoid, joined_by=f"{name}imum"),
            bounds=bounds.same,
            selects=True,
            passes_infinity=True,
        )
        for name, monoid in (("max", "Max"), ("min", "Min"))
    ),
    _reduce(
        "logsumexp",
        "torch.logsumexp({0}, {axes}, keepdim=True)",
        aten=("logsumexp",),
        reduction=Reduction("LogSumExp"),
        passes_infinity=True,
        flops=Flops(9),
    ),
    _reduce(
        "var",
        "torch.var({0}, {axes}, correction={correction}, keepdim=True)",
        "correction",
        reduction=Reduction(
            "Moments", "{state}.m2 / ({count} - {correction})", compound=True, joins=False
        ),
        bounds=within(low=0.0),
        flops=Flops(3),
    ),
)
