"""ATen's reductions, scans and pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from refold.capture.aten_conv import each
from refold.capture.aten_pointwise import binary
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Unsupported, Value, axes_of, axis_of, operand
from refold.ir import NARROW, OPS, Kind, Node, make


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
        if out[1] in NARROW:  # squares of 16 bits overflow where PyTorch's do not
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


@handles("avg_pool1d")
def _avg_pool1d(
    out: Out,
    x: Value,
    size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | tuple[int, ...] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    need(not ceil_mode, "ceil_mode")
    node = make(
        "avg_pool",
        x.node,
        size=size[0],
        stride=(stride or size)[0],
        padding=padding[0],
        count_include_pad=bool(count_include_pad),
    )
    return result(node, out)


@handles("adaptive_avg_pool1d")
def _adaptive_pool(out: Out, x: Value, size: list[int]) -> Value:
    width = x.shape[-1]
    if size[0] == 1:
        return _reduction("mean", x.node, -1, x.rank, out)
    need(isinstance(width, int) and int(width) % size[0] == 0, "uneven adaptive pooling")
    window = int(width) // size[0]  # type: ignore[arg-type]
    return _avg_pool1d(out, x, [window], [window])


def _image_pool(places: int) -> Callable[..., Value]:
    def handler(
        out: Out,
        x: Value,
        size: list[int],
        stride: list[int] | None = None,
        padding: list[int] | int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        need(out[1] in (torch.float32, torch.float64), f"pooling in {out[1]}")
        need(not ceil_mode and divisor_override is None, "ceil_mode or divisor_override")
        need(not any(each(padding, places)), "padded pooling")
        need(x.rank == places + 2, "an unbatched image")
        node = make(
            "image_pool",
            x.node,
            sizes=each(size, places),
            strides=each(stride or size, places),
        )
        return result(node, out)

    return handler


def _adaptive_image_pool(places: int) -> Callable[..., Value]:
    def handler(out: Out, x: Value, size: list[int]) -> Value:
        if list(size) == [1] * places:
            return _reduction("mean", x.node, tuple(range(-places, 0)), x.rank, out)
        given = [n for n in x.shape[-places:] if isinstance(n, int)]
        pairs = list(zip(given, size, strict=False))
        even = len(given) == places and all(m and n % m == 0 for n, m in pairs)
        need(even, "uneven adaptive pooling")
        return _image_pool(places)(out, x, [n // m for n, m in pairs])

    return handler


for _places in (2, 3):
    HANDLERS[f"avg_pool{_places}d"] = _image_pool(_places)
    HANDLERS[f"adaptive_avg_pool{_places}d"] = _adaptive_image_pool(_places)
