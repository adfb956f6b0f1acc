"""Reductions: of one element, of reductions, of monotone functions; see also reduce_affine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.ir import OPS
from refold.rules import additive
from refold.rules.broadcasts import UNARY
from refold.rules.reduce_affine import SCALE, SHIFT
from refold.rules.rule import Rule
from refold.rules.safety import (
    may_be_masked,
)
from refold.rules.term import (
    JOINING,
    REDUCTIONS,
    SELECTING,
    apply,
    constant,
    cumsum,
    held,
    is_unit_along,
    log_softmax,
    logsumexp,
    mean,
    non_unit_axes,
    softmax,
    sum,
    var,
)

ONE_ELEMENT = (
    *(
        Rule(
            f"{name}-of-one",
            "x @axes",
            lambda x, axes, f=f: f(x, axes),
            lambda x, axes: x,
            # a sum starts from +0, so the sum of -0 alone is +0
            "bits" if OPS[name].selects or name == "prod" else "reals",
            f"The {name} over a single element is that element.",
            where=lambda x, axes: is_unit_along(x, axes),
        )
        for name, f in REDUCTIONS.items()
    ),
    Rule(
        "cumsum-of-one",
        "x @axis",
        lambda x, axis: cumsum(x, axis),
        lambda x, axis: x,
        "reals",
        "The running sum over a single element is that element.",
        where=lambda x, axis: is_unit_along(x, (axis,)),
    ),
    Rule(
        "softmax-of-one",
        "x @axis",
        lambda x, axis: softmax(x, axis),
        lambda x, axis: constant(1, x),
        "finite",
        "The softmax over a single element is one.",
        where=lambda x, axis: is_unit_along(x, (axis,)),
        mark="unsafe",
        safe=lambda x, axis: not may_be_masked(x),
    ),
    Rule(
        "log-softmax-of-one",
        "x @axis",
        lambda x, axis: log_softmax(x, axis),
        lambda x, axis: constant(0, x),
        "finite",
        "The log-softmax over a single element is zero.",
        where=lambda x, axis: is_unit_along(x, (axis,)),
        mark="unsafe",
        safe=lambda x, axis: not may_be_masked(x),
    ),
    Rule(
        "variance-of-one",
        "x @axes @correction",
        lambda x, axes, correction: var(x, axes, correction=correction),
        lambda x, axes, correction: constant(0, x),
        "finite",
        "A single element does not vary.",
        where=lambda x, axes, correction: is_unit_along(x, axes) and correction == 0,
        mark="unsafe",
        safe=lambda x, axes, correction: not may_be_masked(x),
    ),
)

NESTED = (
    *(
        Rule(
            f"{name}-of-{name}",
            "x @axes1 @axes2",
            lambda x, axes1, axes2, f=f: f(f(x, axes1), axes2),
            lambda x, axes1, axes2, f=f: f(x, tuple(sorted({*axes1, *axes2}))),
            "reals",
            f"A {name} of {name}s is one {name} over all the axes.",
        )
        for name, f in JOINING.items()
    ),
    *(
        Rule(
            f"{name}-over-wide-axes",
            "x @axes",
            lambda x, axes, f=f: f(x, axes),
            lambda x, axes, f=f: f(x, non_unit_axes(x, axes)),
            "reals",
            f"Axes of one element add nothing to a {name}.",
            where=lambda x, axes: non_unit_axes(x, axes) != (),
            simplify=lambda x, axes: non_unit_axes(x, axes) != axes,
        )
        for name, f in JOINING.items()
    ),
)

_RISING = [op for op in UNARY if not OPS[op].attrs and OPS[op].monotone({}) == 1]
_RISE_BY_ATTRIBUTES = [op for op in UNARY if OPS[op].attrs]


def _rises(op: str, attrs: Mapping[str, Any]) -> bool:
    return OPS[op].monotone(attrs) == 1


MONOTONE = (
    *(
        Rule(
            f"{name}-of-{op}",
            f"x @axes{held(op)}",
            lambda x, axes, f=f, op=op, **attrs: f(apply(op, x, **attrs), axes),
            lambda x, axes, f=f, op=op, **attrs: apply(op, f(x, axes), **attrs),
            "reals",
            f"A function that never falls, such as {op}, keeps the order of its inputs.",
        )
        for op in _RISING
        for name, f in SELECTING.items()
    ),
    *(
        Rule(
            f"{name}-of-{op}",
            f"x @axes{held(op)}",
            lambda x, axes, f=f, op=op, **attrs: f(apply(op, x, **attrs), axes),
            lambda x, axes, f=f, op=op, **attrs: apply(op, f(x, axes), **attrs),
            "reals",
            f"Where {op} never falls, by its attributes, it keeps the order of its inputs.",
            where=lambda x, axes, op=op, **attrs: _rises(op, attrs),
        )
        for op in _RISE_BY_ATTRIBUTES
        for name, f in SELECTING.items()
    ),
    *(
        Rule(
            f"{name}-of-clipped-{at}",
            "x c @axes",
            lambda x, c, axes, f=f, at=at: f(apply(at, x, c), axes),
            lambda x, c, axes, f=f, at=at: apply(at, f(x, axes), c),
            "reals",
            f"Clipping all values by the same bound keeps their order, so the {name} can go first.",
            where=lambda x, c, axes: is_unit_along(c, axes),
        )
        for name, f in SELECTING.items()
        for at in ("maximum", "minimum")
    ),
)

CONSTANT = (
    Rule(
        "sum-of-softmax",
        "x @axis @axes",
        lambda x, axis, axes: sum(softmax(x, axis), axes),
        lambda x, axis, axes: constant(1, sum(x, axes)),
        "finite",
        "The elements of a softmax add up to one.",
        where=lambda x, axis, axes: axes == (axis,),
        mark="unsafe",
        safe=lambda x, axis, axes: not may_be_masked(x),
    ),
    Rule(
        "mean-of-softmax",
        "x @axis @axes",
        lambda x, axis, axes: mean(softmax(x, axis), axes),
        lambda x, axis, axes: constant(1, sum(x, axes)) / x.shape[axis],
        "finite",
        "The elements of a softmax add up to one, so their mean is one over their number.",
        where=lambda x, axis, axes: axes == (axis,),
        mark="unsafe",
        safe=lambda x, axis, axes: not may_be_masked(x),
    ),
    Rule(
        "logsumexp-of-log-softmax",
        "x @axis @axes",
        lambda x, axis, axes: logsumexp(log_softmax(x, axis), axes),
        lambda x, axis, axes: constant(0, sum(x, axes)),
        "finite",
        "The exponentials of a log-softmax add up to one, whose logarithm is zero.",
        where=lambda x, axis, axes: axes == (axis,),
        mark="unsafe",
        safe=lambda x, axis, axes: not may_be_masked(x),
    ),
)

RULES = (*ONE_ELEMENT, *NESTED, *additive.RULES, *SHIFT, *SCALE, *MONOTONE, *CONSTANT)
