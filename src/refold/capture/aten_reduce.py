"""ATen's reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from refold.capture.aten_pointwise import as_number, binary, is_compared, negated
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Unsupported, Value, axes_of, axis_of, operand
from refold.ir import HALF_DTYPES, OPS, Kind, Node, as_scalar, make


def _reduction(op: str, x: Node, dims: Any, rank: int, out: Out, **attrs: Any) -> Value:
    return result(make(op, x, axes=axes_of(dims, rank), **attrs), out)


def _plain_reduction(op: str) -> Callable[..., Any]:
    def handler(out: Any, x: Value, dim: Any = None, keepdim: bool = False, **kw: Any) -> Any:
        if isinstance(out, list):  # max.dim and min.dim give indices too: those stay with PyTorch
            raise Unsupported("indices")
        need(not isinstance(dim, Value), "a pointwise form")
        need(x.rank > 0, "rank 0")
        return _reduction(op, operand(x, out[1]), dim, x.rank, out)

    return handler


for _op in OPS.values():
    if _op.kind is Kind.REDUCE:
        handles(*_op.aten)(_plain_reduction(_op.name))


def _extremum(op: str, pointwise: str) -> Callable[..., Any]:
    def handler(out: Any, x: Value, other: Any = None, keepdim: bool = False) -> Any:
        if isinstance(other, Value):
            return binary(pointwise)(out, x, other)
        if isinstance(out, list):
            # where the indices are read too, the call stays whole
            return [_reduction(op, x.node, other, x.rank, out[0]), None]
        return _reduction(op, x.node, None, x.rank, out)

    return handler


HANDLERS["max"] = _extremum("max", "maximum")
HANDLERS["min"] = _extremum("min", "minimum")


@handles("any")
def _any(out: Out, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    need(x.rank > 0 and is_compared(x), "a mask that lies in memory")
    # a sum, and no largest: of no values none is true
    count = make("sum", as_number(x), axes=axes_of(dim, x.rank))
    return result(make("ne", count, as_scalar(0.0, count.dtype)), out)


@handles("all")
def _all(out: Out, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    opposite = Value(negated(x), x.shape)
    return result(negated(_any(out, opposite, dim)), out)


@handles("prod")
def _prod(out: Out, x: Value, dim: int | None = None, keepdim: bool = False, **kw: Any) -> Value:
    need(dim is not None, "a product of everything")
    return _reduction("prod", operand(x, out[1]), dim, x.rank, out)


def variance_of(x: Value, dim: Any, correction: Any, unbiased: bool, out: Out) -> Value:
    amount = 1 if correction is None and unbiased else (correction or 0)
    need(amount in (0, 1), f"correction {amount}")
    return _reduction("var", x.node, dim, x.rank, out, correction=int(amount))


@handles("var", "std")
def _var(
    out: Out,
    x: Value,
    dim: Any = None,
    unbiased: Any = True,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Value:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return variance_of(x, dim, correction, unbiased, out)


HANDLERS["std"] = lambda out, *a, **k: result(make("sqrt", _var(out, *a, **k).node), out)


@handles("linalg_vector_norm", "norm")
def _norm(
    out: Out, x: Value, p: Any = 2, dim: Any = None, keepdim: bool = False, **kw: Any
) -> Value:
    node, axes = operand(x, out[1]), axes_of(dim, x.rank)
    if p in (2, 2.0, None):
        if out[1] in HALF_DTYPES:  # squares of 16 bits overflow where PyTorch's do not
            node = make("cast", node, dtype=torch.float32)
        root = make("sqrt", make("sum", make("square", node), axes=axes))
        return result(root if root.dtype == out[1] else make("cast", root, dtype=out[1]), out)
    op = {1.0: "sum", math.inf: "max", -math.inf: "min"}.get(float(p))
    need(op is not None, f"norm of order {p}")
    return result(make(str(op), make("abs", node), axes=axes), out)


def _scan(op: str) -> Callable[..., Value]:
    def handler(out: Out, x: Value, dim: int, *unused: Any, **options: Any) -> Value:
        return result(make(op, operand(x, out[1]), axis=axis_of(dim, x.rank)), out)

    return handler


for _op in OPS.values():
    if _op.kind is Kind.SCAN:
        handles(*_op.aten)(_scan(_op.name))
