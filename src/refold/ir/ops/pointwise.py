"""Ops that compute each element from the same element of every input."""

from __future__ import annotations

import math
from typing import Any

from refold.ir import bounds, shapes
from refold.ir.bounds import within
from refold.ir.op import Attrs, Contraction, Flops, Kind, Op, Rounding, falls, rises

_POSITIVE = (0.0, math.inf)
# Beyond `threshold` PyTorch gives x itself, which is exp(-threshold) less: from here on nothing in
# any dtype, and before it a step downwards.
_NO_STEP = 34.0


def _op(name: str, arity: int, meaning: str, cpp: str, **facts: Any) -> Op:
    infer = facts.pop("infer", shapes.pointwise)
    return Op(name, Kind.POINTWISE, meaning, infer, arity, cpp=cpp, **facts)


def _exact(name: str, meaning: str, cpp: str, **facts: Any) -> Op:
    """Of one input, which it only changes by its sign or by a fraction."""
    return _op(name, 1, meaning, cpp, aten=(name,), rounding=Rounding.NONE, **facts)


def _function(name: str, cpp: str | None = None, **facts: Any) -> Op:
    """A function of one input that PyTorch's tensors have as a method of that name."""
    cpp = cpp or f"{name}({{0}})"
    return _op(name, 1, f"{{0}}.{name}()", cpp, aten=(name,), **facts)


def _activation(name: str, cpp: str, **facts: Any) -> Op:
    """A function of one input in torch.nn.functional."""
    meaning = f"torch.nn.functional.{name}({{0}})"
    return _op(name, 1, meaning, cpp, aten=(name,), **facts)


def _comparison(name: str, sign: str, commutative: bool = False) -> Op:
    return _op(
        name,
        2,
        f"({{0}} {sign} {{1}})",
        f"{{0}} {sign} {{1}}",
        infer=shapes.compare,
        aten=(name,),
        rounding=Rounding.NONE,
        jumps=True,
        commutative=commutative,
    )


def _rises_if(name: str) -> Any:
    """Monotone where an attribute is not negative."""

    def slope(attrs: Attrs) -> int:
        return 1 if attrs[name] >= 0 else 0

    return slope


def _softplus(attrs: Attrs) -> int:
    return 1 if attrs["beta"] > 0 and attrs["threshold"] >= _NO_STEP else 0


_SIX = "minimum(maximum({0} + 3.0f, lanes<V>(0.0f)), lanes<V>(6.0f))"

UNARY = (
    _exact(
        "neg",
        "-{0}",
        "-{0}",
        linear_in=((0,),),
        monotone=falls,
        selects=True,
        passes_infinity=True,
    ),
    _exact(
        "abs",
        "{0}.abs()",
        "abs({0})",
        bounds=within(low=0.0),
        idempotent=True,
        selects=True,
        passes_infinity=True,
    ),
    _function("exp", monotone=rises, bounds=within(low=0.0), flops=Flops(8, unrolled=3)),
    _function("expm1", monotone=rises, bounds=within(low=-1.0), flops=Flops(10)),
    _function("log", domain=_POSITIVE, passes_infinity=True, flops=Flops(8)),
    _function("log1p", domain=(-1.0, math.inf), flops=Flops(10)),
    _function(
        "sqrt",
        domain=_POSITIVE,
        bounds=within(low=0.0),
        rounding=Rounding.ONCE,
        flops=Flops(4),
    ),
    _function("rsqrt", domain=_POSITIVE, bounds=bounds.falling(low=0.0), flops=Flops(4)),
    _function(
        "reciprocal",
        "1.0f / {0}",
        bounds=bounds.falling(),
        rounding=Rounding.ONCE,
        multiplies=True,
        flops=Flops(4),
    ),
    _function(
        "square",
        "{0} * {0}",
        bounds=within(low=0.0),
        rounding=Rounding.ONCE,
        multiplies=True,
        contraction=Contraction.PRODUCT,
        passes_infinity=True,
    ),
    _function("sin", bounds=within(-1.0, 1.0), flops=Flops(10, slow_path=True)),
    _function("cos", bounds=within(-1.0, 1.0), flops=Flops(10, slow_path=True)),
    _function("tanh", monotone=rises, bounds=within(-1.0, 1.0), flops=Flops(12)),
    _function("sigmoid", monotone=rises, bounds=within(0.0, 1.0), flops=Flops(10, unrolled=4)),
    _function("erf", monotone=rises, bounds=within(-1.0, 1.0), flops=Flops(12)),
    *(
        _exact(
            name,
            f"{{0}}.{name}()",
            f"{name}({{0}})",
            monotone=rises,
            idempotent=True,
            jumps=True,
            passes_infinity=True,
        )
        for name in ("floor", "ceil", "round", "trunc")
    ),
    _exact(
        "relu",
        "{0}.relu()",
        "relu({0})",
        monotone=rises,
        bounds=within(low=0.0),
        idempotent=True,
        selects=True,
    ),
    _op(
        "gelu",
        1,
        "torch.nn.functional.gelu({0})",
        "gelu({0})",
        bounds=within(low=-0.17),
        flops=Flops(16),
    ),
    _op(
        "gelu_tanh",
        1,
        "torch.nn.functional.gelu({0}, approximate='tanh')",
        "0.5f * {0} * (1.0f + tanh(0.79788456080286536f * ({0} + 0.044715f * {0} * {0} * {0})))",
        bounds=within(low=-0.18),
        flops=Flops(20),
    ),
    _activation(
        "silu", "{0} * sigmoid({0})", bounds=within(low=-0.28), flops=Flops(12, unrolled=5)
    ),
    _op(
        "softplus",
        1,
        "torch.nn.functional.softplus({0}, {beta}, {threshold})",
        "where({0} * {beta} > lanes<V>({threshold}), {0}, log1p(exp({0} * {beta})) / {beta})",
        attrs=("beta", "threshold"),
        defaults=(1.0, 20.0),
        aten=("softplus",),
        monotone=_softplus,
        bounds=bounds.softplus,
        flops=Flops(20),
    ),
    _op(
        "elu",
        1,
        "torch.nn.functional.elu({0}, {alpha})",
        "where({0} > lanes<V>(0.0f), {0}, {alpha} * expm1({0}))",
        attrs=("alpha",),
        monotone=_rises_if("alpha"),
        flops=Flops(12),
    ),
    _op(
        "leaky_relu",
        1,
        "torch.nn.functional.leaky_relu({0}, {slope})",
        "where({0} > lanes<V>(0.0f), {0}, {slope} * {0})",
        attrs=("slope",),
        defaults=(0.01,),
        aten=("leaky_relu",),
        monotone=_rises_if("slope"),
        passes_infinity=True,
        flops=Flops(2),
    ),
    _activation("mish", "mish({0})", bounds=within(low=-0.31), flops=Flops(16)),
    _activation(
        "hardsigmoid", f"{_SIX} / 6.0f", monotone=rises, bounds=within(0.0, 1.0), flops=Flops(4)
    ),
    _activation("hardswish", f"{{0}} * {_SIX} / 6.0f", bounds=within(low=-0.38), flops=Flops(5)),
    _activation(
        "selu",
        "1.0507009873554805f * where({0} > lanes<V>(0.0f), {0}, 1.6732632423543772f * expm1({0}))",
        monotone=rises,
        bounds=within(low=-1.76),
        flops=Flops(12),
    ),
    _op(
        "cast",
        1,
        "{0}.to({dtype})",
        "rounded<{dtype}>({0})",
        attrs=("dtype",),
        infer=shapes.cast,
        rounding=Rounding.ONCE,
        bounds=bounds.cast,
        passes_infinity=True,
    ),
)

BINARY = (
    _op(
        "add",
        2,
        "({0} + {1})",
        "{0} + {1}",
        rounding=Rounding.ONCE,
        contraction=Contraction.SUM,
        commutative=True,
        linear_in=((0, 1),),
        bounds=bounds.add,
        passes_infinity=True,
    ),
    _op(
        "sub",
        2,
        "({0} - {1})",
        "{0} - {1}",
        rounding=Rounding.ONCE,
        contraction=Contraction.SUM,
        linear_in=((0, 1),),
        bounds=bounds.sub,
        passes_infinity=True,
    ),
    _op(
        "mul",
        2,
        "({0} * {1})",
        "{0} * {1}",
        cpp_apart="mul_rn<V>({0}, {1})",
        aten=("mul",),
        rounding=Rounding.ONCE,
        multiplies=True,
        contraction=Contraction.PRODUCT,
        commutative=True,
        linear_in=((0,), (1,)),
        bounds=bounds.mul,
        passes_infinity=True,
    ),
    _op(
        "div",
        2,
        "({0} / {1})",
        "{0} / {1}",
        rounding=Rounding.ONCE,
        multiplies=True,
        linear_in=((0,),),
        bounds=bounds.div,
        passes_infinity=True,
        flops=Flops(4),
    ),
    _op(
        "pow",
        2,
        "({0} ** {1})",
        "pow({0}, {1})",
        domain=_POSITIVE,
        multiplies=True,
        passes_infinity=True,
        flops=Flops(24, slow_path=True),
    ),
    *(
        _op(
            name,
            2,
            f"torch.{name}({{0}}, {{1}})",
            f"{name}({{0}}, {{1}})",
            takes_tensors_only=True,
            aten=(name,),
            rounding=Rounding.NONE,
            commutative=True,
            bounds=within_of,
            selects=True,
            passes_infinity=True,
        )
        for name, within_of in (("maximum", bounds.maximum), ("minimum", bounds.minimum))
    ),
    _comparison("lt", "<"),
    _comparison("le", "<="),
    _comparison("gt", ">"),
    _comparison("ge", ">="),
    _comparison("eq", "==", commutative=True),
    _comparison("ne", "!=", commutative=True),
)

ROWS = (
    *UNARY,
    *BINARY,
    _op(
        "where",
        3,
        "torch.where({0}, {1}, {2})",
        "where({0}, {1}, {2})",
        infer=shapes.select,
        rounding=Rounding.NONE,
        bounds=bounds.choice,
        selects=True,
        passes_infinity=True,
    ),
)
