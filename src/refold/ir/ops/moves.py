"""Ops that move elements; pooling along the last axis is among them."""

from __future__ import annotations

from typing import Any

from refold.ir import bounds, shapes
from refold.ir.op import Inference, Kind, Op, Rounding


def _move(name: str, meaning: str, infer: Inference, *attrs: str, **facts: Any) -> Op:
    """Each element of the result is one of the input's."""
    given: dict[str, Any] = {"arity": 1, "linear_in": ((0,),), "bounds": bounds.same}
    return Op(
        name,
        Kind.MOVE,
        meaning,
        infer,
        attrs=attrs,
        rounding=Rounding.NONE,
        selects=True,
        passes_infinity=True,
        **(given | facts),
    )


ROWS = (
    _move("reshape", "{0}.reshape({shape})", shapes.reshape, "shape", is_view=True),
    _move("permute", "{0}.permute({order})", shapes.permute, "order", is_view=True),
    _move(
        "diagonal",
        "torch.diag_embed({0}.squeeze(-2))",
        shapes.diagonal,
        bounds=bounds.with_zero,
        least_rank=2,
    ),
    _move("expand", "{0}.expand({shape})", shapes.expand, "shape", is_view=True),
    _move(
        "slice",
        "{0}.narrow({axis}, {start}, {length})",
        shapes.narrow,
        "axis",
        "start",
        "length",
        is_view=True,
    ),
    _move(
        "cat",
        "torch.cat({0}, {axis})",
        shapes.cat,
        "axis",
        arity=None,
        linear_in=((),),
        bounds=bounds.hull,
    ),
    Op(
        "avg_pool",
        Kind.MOVE,
        "torch.nn.functional.avg_pool1d({0}.flatten(0, -2), {size}, {stride}, {padding}, False,"
        " {count_include_pad}).unflatten(0, {0}.shape[:-1])",
        shapes.pooled,
        1,
        ("size", "stride", "padding", "count_include_pad"),
        linear_in=((0,),),
        bounds=bounds.pool,
        passes_infinity=True,
        least_rank=2,
    ),
)
