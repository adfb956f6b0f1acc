"""ATen's pointwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from refold.capture.aten_index import compared
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Number, Value, axis_of, cast, operand, value
from refold.ir import OPS, Kind, Node, Op, as_scalar, make


def _unary(op: Op) -> Callable[..., Value]:
    given = len(op.attrs) - len(op.defaults)

    def handler(out: Out, x: Value, *numbers: float, **named: float) -> Value:
        values = (*numbers, *op.defaults[max(0, len(numbers) - given) :])
        attrs = {n: float(v) for n, v in zip(op.attrs, values, strict=True)}
        need(set(named) <= set(attrs), f"arguments {sorted(named)}")
        attrs |= {n: float(v) for n, v in named.items()}
        return result(make(op.name, operand(x, out[1]), **attrs), out)

    return handler


def binary(op: str) -> Callable[..., Value]:
    def handler(out: Out, a: Value | Number, b: Value | Number, alpha: Number = 1) -> Value:
        right = operand(b, out[1])
        if alpha != 1:
            right = make("mul", right, as_scalar(alpha, out[1]))
        return result(make(op, operand(a, out[1]), right), out)

    return handler


for _name in ("add", "sub"):  # which have a factor `alpha`, as no row has
    HANDLERS[_name] = binary(_name)


@handles("div", "true_divide")
def _div(out: Out, a: Value, b: Value | Number, rounding_mode: str | None = None) -> Value:
    need(rounding_mode is None, "rounding division")
    return result(make("div", operand(a, out[1]), operand(b, out[1])), out)


@handles("rsub")
def _rsub(out: Out, a: Value, b: Value | Number, alpha: Number = 1) -> Value:
    return binary("sub")(out, b, a, alpha)


def _comparison(op: str) -> Callable[..., Value]:
    def handler(out: Out, a: Value, b: Value | Number) -> Value:
        kind = torch.promote_types(a.dtype, b.dtype) if isinstance(b, Value) else a.dtype
        need(isinstance(b, Value) or kind.is_floating_point or isinstance(b, int), "mixed dtypes")
        if isinstance(b, Value) and not kind.is_floating_point:
            found = compared(op, a, b, out[0])
            if found is not None:
                return result(found, out)
        return result(make(op, operand(a, kind), operand(b, kind)), out)

    return handler


def _of_row(op: Op) -> Callable[..., Value]:
    """The handler of a pointwise op that is an operator of ATen, argument for argument."""
    if op.is_comparison:
        return _comparison(op.name)
    return _unary(op) if op.arity == 1 else binary(op.name)


for _op in OPS.values():
    if _op.kind is Kind.POINTWISE:
        handles(*_op.aten)(_of_row(_op))


# --- truth: kernels compute with floating-point numbers, zero or one ---
def is_compared(x: Value) -> bool:
    """Is a mask made by comparing floating-point numbers, as kernels do? Others lie in memory as
    one byte an element, and PyTorch's own calls read and write no more."""
    return x.node.row.is_comparison and x.node.inputs[0].dtype.is_floating_point


def as_number(x: Value) -> Node:
    """One where x is true. Raises Unsupported where x are numbers themselves."""
    need(x.dtype == torch.bool, "the truth of numbers")
    one, zero = (as_scalar(n, torch.float32) for n in (1.0, 0.0))
    return make("where", x.node, one, zero)


def negated(x: Value) -> Node:
    need(is_compared(x), "a mask that lies in memory")
    if x.node.op in _OPPOSITE:
        return make(_OPPOSITE[x.node.op], *x.node.inputs)
    return make("eq", as_number(x), as_scalar(0.0, torch.float32))


_OPPOSITE = {"eq": "ne", "ne": "eq"}  # and no others: what is no number is not less, nor not less


@handles("logical_not", "bitwise_not")
def _not(out: Out, x: Value) -> Value:
    return result(negated(x), out)


def _connective(op: str) -> Callable[..., Value]:
    def handler(out: Out, a: Value, b: Value) -> Value:
        need(isinstance(a, Value) and isinstance(b, Value), "a number")
        need(is_compared(a) or is_compared(b), "masks that lie in memory")
        both = make(op, as_number(a), as_number(b))
        return result(make("ne", both, as_scalar(0.0, torch.float32)), out)

    return handler


handles("logical_and", "bitwise_and", "__and__")(_connective("minimum"))
handles("logical_or", "bitwise_or", "__or__")(_connective("maximum"))


@handles("pow")
def _pow(out: Out, x: Value | Number, e: Value | Number) -> Value:
    if isinstance(x, Value) and isinstance(e, (int, float)):
        base = operand(x, out[1])
        if e == 1:
            return result(base, out)
        simple = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}.get(e)
        if simple:
            return result(make(simple, base), out)
        if e == 3:
            return result(make("mul", make("square", base), base), out)
    return result(make("pow", operand(x, out[1]), operand(e, out[1])), out)


@handles("where")
def _where(out: Out, mask: Value, a: Value | Number, b: Value | Number) -> Value:
    return result(make("where", mask.node, operand(a, out[1]), operand(b, out[1])), out)


@handles("masked_fill")
def _masked_fill(out: Out, x: Value, mask: Value, fill: Value | Number) -> Value:
    return _where(out, mask, fill, x)


@handles("clamp", "hardtanh", "clamp_min", "clamp_max")
def _clamp(out: Out, x: Value, low: Any = None, high: Any = None) -> Value:
    node = operand(x, out[1])
    if low is not None:
        node = make("maximum", node, operand(low, out[1]))
    if high is not None:
        node = make("minimum", node, operand(high, out[1]))
    return result(node, out)


HANDLERS["hardtanh"] = lambda out, x, low=-1.0, high=1.0: _clamp(out, x, low, high)
HANDLERS["clamp_max"] = lambda out, x, high: _clamp(out, x, None, high)
HANDLERS["relu6"] = lambda out, x: _clamp(out, x, 0.0, 6.0)


@handles("gelu")
def _gelu(out: Out, x: Value, approximate: str = "none") -> Value:
    return result(make("gelu" if approximate == "none" else "gelu_tanh", x.node), out)


@handles("elu")
def _elu(out: Out, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    need(scale == 1 and input_scale == 1, "scaled elu")
    return result(make("elu", x.node, alpha=float(alpha)), out)


@handles("celu")
def _celu(out: Out, x: Value, alpha: float = 1) -> Value:
    scaled = make("div", x.node, as_scalar(alpha, x.dtype))
    return result(make("mul", make("elu", scaled, alpha=1.0), as_scalar(alpha, x.dtype)), out)


@handles("log_sigmoid")
def _log_sigmoid(out: Out, x: Value) -> Value:
    # from 40 on it is -x to a double's last bit; from 88.8 on exp(-x) is no float
    soft = make("softplus", make("neg", x.node), beta=1.0, threshold=40.0)
    return result(make("neg", soft), out)


@handles("softsign")
def _softsign(out: Out, x: Value) -> Value:
    bottom = make("add", make("abs", x.node), as_scalar(1, x.dtype))
    return result(make("div", x.node, bottom), out)


@handles("threshold")
def _threshold(out: Out, x: Value, threshold: Number, fill: Number) -> Value:
    mask = make("le", x.node, as_scalar(threshold, x.dtype))
    return result(make("where", mask, as_scalar(fill, x.dtype), x.node), out)


@handles("prelu")
def _prelu(out: Out, x: Value, slope: Value) -> Value:
    if slope.rank == 1 and slope.shape[0] != 1:
        need(x.rank >= 2, "prelu of rank 1")
        slope = value(slope.node, (slope.shape[0], *(1,) * (x.rank - 2)))
    positive = make("gt", x.node, as_scalar(0, x.dtype))
    return result(make("where", positive, x.node, make("mul", slope.node, x.node)), out)


@handles("glu")
def _glu(out: Out, x: Value, dim: int = -1) -> Value:
    axis = axis_of(dim, x.rank)
    size = x.node.shape[axis]
    need(isinstance(size, int), "glu over a size that varies")
    half = int(size) // 2  # type: ignore[arg-type]
    a = make("slice", x.node, axis=axis, start=0, length=half)
    b = make("slice", x.node, axis=axis, start=half, length=half)
    return result(make("mul", a, make("sigmoid", b)), out)


@handles("addcmul")
def _addcmul(out: Out, x: Value, a: Value, b: Value, value: Number = 1) -> Value:
    product = make("mul", operand(a, out[1]), operand(b, out[1]))
    if value != 1:
        product = make("mul", product, as_scalar(value, out[1]))
    return result(make("add", operand(x, out[1]), product), out)


@handles("lerp")
def _lerp(out: Out, a: Value, b: Value, weight: Value | Number) -> Value:
    step = make("mul", operand(weight, out[1]), make("sub", b.node, a.node))
    return result(make("add", a.node, step), out)


@handles(
    "clone",
    "alias",
    "detach",
    "lift_fresh",
    "lift_fresh_copy",
    "contiguous",
    "dropout",
    "_to_copy",
    "to",
    "type_as",
)
def _identity(out: Out, x: Value, *unused: Any, **options: Any) -> Value:
    need(options.get("device") is None, "a copy to another device")
    return Value(cast(x, out[1]).node, out[0])
