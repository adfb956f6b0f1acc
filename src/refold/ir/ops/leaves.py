"""Leaves, whose shape and dtype are given, and calls of PyTorch that no row describes."""

from __future__ import annotations

from refold.ir import bounds, shapes
from refold.ir.op import Bounds, Kind, Op


def _leaf(name: str, *attrs: str, within: Bounds = bounds.unknown) -> Op:
    return Op(name, Kind.LEAF, "", shapes.no_inference, 0, attrs, bounds=within)


ROWS = (
    _leaf("input", "name", "index"),  # an argument of forward
    _leaf("param", "name"),  # a parameter or buffer, by its dotted name
    _leaf("state", "name"),  # a buffer that the function itself writes: read anew at every call
    _leaf("constant", "name"),  # a tensor attribute that is neither
    _leaf("scalar", "value", within=bounds.scalar),  # a Python number, or a size of an input
    Op(
        "aten",
        Kind.OPAQUE,
        "",
        shapes.no_inference,
        None,
        ("target", "args", "kwargs", "shapes", "index", "rank"),
    ),
)
