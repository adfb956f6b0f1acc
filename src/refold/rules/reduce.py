"""Reductions: of one element, of reductions, of sums and products, of monotone functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refold.ir import OPS
from refold.rules.rule import Mark, Rule
from refold.rules.safety import (
    is_lowered_by_max,
    is_map,
    is_nonzero,
    is_parameter,
    is_tame,
    may_be_masked,
)
from refold.rules.spread import UNARY
from refold.rules.term import (
    JOINING,
    LINEAR,
    REDUCTIONS,
    SELECTING,
    Term,
    apply,
    avg_pool,
    constant,
    cumsum,
    fits,
    flat,
    held,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    softmax,
    spread,
    square,
    sum,
    var,
    wide,
)


def _keeps_nan(x: Term, c: Term, axes: tuple[int, ...]) -> bool:
    """Is `x - c` NaN nowhere, or wherever the maximum of x less c is?"""
    return not may_be_masked(c) or is_lowered_by_max(x - c, axes)


def _keeps_digits(x: Term, c: Term, axes: tuple[int, ...]) -> bool:
    return is_map(x) and _keeps_nan(x, c, axes)


_LOWERED: tuple[tuple[str, Any, Mark | None, Any], ...] = (
    ("max", max, "unsafe", _keeps_nan),
    ("min", min, None, None),
    ("logsumexp", logsumexp, "cancels", _keeps_digits),
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
            where=lambda x, axes: flat(x, axes),
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
        where=lambda x, axis: flat(x, (axis,)),
    ),
    Rule(
        "softmax-of-one",
        "x @axis",
        lambda x, axis: softmax(x, axis),
        lambda x, axis: constant(1, x),
        "finite",
        "The softmax over a single element is one.",
        where=lambda x, axis: flat(x, (axis,)),
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
        where=lambda x, axis: flat(x, (axis,)),
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
        where=lambda x, axes, correction: flat(x, axes) and correction == 0,
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
            lambda x, axes, f=f: f(x, wide(x, axes)),
            "reals",
            f"Axes of one element add nothing to a {name}.",
            where=lambda x, axes: wide(x, axes) != (),
            simplify=lambda x, axes: wide(x, axes) != axes,
        )
        for name, f in JOINING.items()
    ),
)

SHIFT = (
    Rule(
        "sum-of-shifted",
        "x b! @axes",
        lambda x, b, axes: sum(x + b, axes),
        lambda x, b, axes: sum(x, axes) + spread(b, x, axes),
        "reals",
        "The sum of shifted values is their sum plus the sum of the shifts.",
        where=lambda x, b, axes: fits(b, x),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x),
    ),
    Rule(
        "sum-of-evenly-shifted",
        "x b @axes",
        lambda x, b, axes: sum(x + b, axes),
        lambda x, b, axes: sum(x, axes) + spread(b, x, axes),
        "reals",
        "The sum of values shifted alike is their sum plus so many shifts.",
        where=lambda x, b, axes: flat(b, axes),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x) or is_map(b),
    ),
    Rule(
        "sum-of-evenly-lowered",
        "x b @axes",
        lambda x, b, axes: sum(x - b, axes),
        lambda x, b, axes: sum(x, axes) - spread(b, x, axes),
        "reals",
        "The sum of values lowered alike is their sum minus so many shifts.",
        where=lambda x, b, axes: flat(b, axes),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x) or is_map(b),
    ),
    Rule(
        "mean-of-shifted",
        "x b! @axes",
        lambda x, b, axes: mean(x + b, axes),
        lambda x, b, axes: mean(x, axes) + mean(b, axes),
        "reals",
        "The mean of shifted values is their mean plus the mean of the shifts.",
        mark="cancels",
        safe=lambda x, b, axes: is_map(x),
    ),
    Rule(
        "mean-of-evenly-shifted",
        "x b @axes",
        lambda x, b, axes: mean(x + b, axes),
        lambda x, b, axes: mean(x, axes) + b,
        "reals",
        "The mean of values shifted alike is their mean, shifted.",
        where=lambda x, b, axes: flat(b, axes),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x) or is_map(b),
    ),
    Rule(
        "mean-of-evenly-lowered",
        "x b @axes",
        lambda x, b, axes: mean(x - b, axes),
        lambda x, b, axes: mean(x, axes) - b,
        "reals",
        "The mean of values lowered alike is their mean, lowered.",
        where=lambda x, b, axes: flat(b, axes),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x) or is_map(b),
    ),
    Rule(
        "variance-ignores-shift",
        "x b @axes @correction",
        lambda x, b, axes, correction: var(x + b, axes, correction=correction),
        lambda x, b, axes, correction: var(x, axes, correction=correction),
        "finite",
        "A shift that is the same for all values does not change how they vary.",
        where=lambda x, b, axes, correction: flat(b, axes) and fits(b, x),
        mark="unsafe",
        safe=lambda x, b, axes, correction: not may_be_masked(b),
    ),
    *(
        Rule(
            f"{name}-of-shifted",
            "x c @axes",
            lambda x, c, axes, f=f: f(x + c, axes),
            lambda x, c, axes, f=f: f(x, axes) + c,
            "reals",
            f"The {name} of values shifted alike is their {name}, shifted.",
            where=lambda x, c, axes: flat(c, axes),
            mark="cancels" if name == "logsumexp" else None,
            safe=(lambda x, c, axes: is_map(x)) if name == "logsumexp" else None,
        )
        for name, f in {**SELECTING, "logsumexp": logsumexp}.items()
    ),
    *(
        Rule(
            f"{name}-of-lowered",
            "x c @axes",
            lambda x, c, axes, f=f: f(x - c, axes),
            lambda x, c, axes, f=f: f(x, axes) - c,
            "reals",
            f"The {name} of values lowered alike is their {name}, lowered.",
            where=lambda x, c, axes: flat(c, axes),
            mark=mark,
            safe=safe,
        )
        for name, f, mark, safe in _LOWERED
    ),
    Rule(
        "pool-of-shifted",
        "x[N,K] b[_,K]! @size @stride @padding @count_include_pad",
        lambda x, b, size, stride, padding, count_include_pad: avg_pool(
            x + b, size, stride, padding, count_include_pad
        ),
        lambda x, b, size, stride, padding, count_include_pad: (
            avg_pool(x, size, stride, padding, count_include_pad)
            + avg_pool(b, size, stride, padding, count_include_pad)
        ),
        "reals",
        "Pooling shifted values is pooling the values and the shifts.",
        mark="cancels",
        safe=lambda x, b, size, stride, padding, count_include_pad: is_map(x),
    ),
    Rule(
        "pool-of-evenly-shifted",
        "x b[_,1] @size @stride @padding @count_include_pad",
        lambda x, b, size, stride, padding, count_include_pad: avg_pool(
            x + b, size, stride, padding, count_include_pad
        ),
        lambda x, b, size, stride, padding, count_include_pad: (
            avg_pool(x, size, stride, padding, count_include_pad) + b
        ),
        "reals",
        "Without padding, pooling values shifted alike is pooling them, shifted.",
        where=lambda x, b, size, stride, padding, count_include_pad: padding == 0,
        mark="cancels",
        safe=lambda x, b, size, stride, padding, count_include_pad: is_map(x),
    ),
    Rule(
        "cumsum-of-shifted",
        "x b! @axis",
        lambda x, b, axis: cumsum(x + b, axis),
        lambda x, b, axis: cumsum(x, axis) + cumsum(b, axis),
        "reals",
        "Running sums of shifted values are running sums of the values and of the shifts.",
        where=lambda x, b, axis: x.shape[axis] == b.shape[axis],
        mark="cancels",
        safe=lambda x, b, axis: is_map(x),
    ),
)

SCALE = (
    *(
        Rule(
            f"{name}-of-scaled",
            "x s @axes",
            lambda x, s, axes, f=f: f(x * s, axes),
            lambda x, s, axes, f=f: f(x, axes) * s,
            "reals",
            f"The {name} of values scaled alike is their {name}, scaled.",
            where=lambda x, s, axes: flat(s, axes),
        )
        for name, f in LINEAR.items()
    ),
    *(
        Rule(
            f"{name}-of-divided",
            "x s @axes",
            lambda x, s, axes, f=f: f(x / s, axes),
            lambda x, s, axes, f=f: f(x, axes) / s,
            "reals",
            f"The {name} of values divided alike is their {name}, divided.",
            where=lambda x, s, axes: flat(s, axes),
            mark="unsafe",
            safe=lambda x, s, axes: is_nonzero(s),
        )
        for name, f in LINEAR.items()
    ),
    *(
        Rule(
            f"{name}-of-positively-scaled",
            "x s+ @axes",
            lambda x, s, axes, f=f: f(x * s, axes),
            lambda x, s, axes, f=f: f(x, axes) * s,
            "reals",
            f"A factor that is not negative does not change which value is the {name}.",
            where=lambda x, s, axes: flat(s, axes),
        )
        for name, f in SELECTING.items()
    ),
    *(
        Rule(
            f"{name}-of-negatively-scaled",
            "x s- @axes",
            lambda x, s, axes, f=f: f(x * s, axes),
            lambda x, s, axes, g=g: g(x, axes) * s,
            "reals",
            "A factor that is not positive turns the order round.",
            where=lambda x, s, axes: flat(s, axes),
        )
        for name, f, g in (("max", max, min), ("min", min, max))
    ),
    Rule(
        "variance-of-scaled",
        "x s @axes @correction",
        lambda x, s, axes, correction: var(x * s, axes, correction=correction),
        lambda x, s, axes, correction: var(x, axes, correction=correction) * square(s),
        "reals",
        "A factor that is the same for all values enters their variance squared.",
        where=lambda x, s, axes, correction: flat(s, axes),
        mark="range",
        safe=lambda x, s, axes, correction: is_tame(s) or (is_map(x) and is_parameter(s)),
    ),
    Rule(
        "pool-of-scaled",
        "x s[_,1] @size @stride @padding @count_include_pad",
        lambda x, s, size, stride, padding, count_include_pad: avg_pool(
            x * s, size, stride, padding, count_include_pad
        ),
        lambda x, s, size, stride, padding, count_include_pad: (
            avg_pool(x, size, stride, padding, count_include_pad) * s
        ),
        "reals",
        "Pooling values scaled alike is pooling them, scaled.",
    ),
    Rule(
        "cumsum-of-scaled",
        "x s @axis",
        lambda x, s, axis: cumsum(x * s, axis),
        lambda x, s, axis: cumsum(x, axis) * s,
        "reals",
        "Running sums of values scaled alike are their running sums, scaled.",
        where=lambda x, s, axis: flat(s, (axis,)),
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
            where=lambda x, c, axes: flat(c, axes),
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

RULES = (*ONE_ELEMENT, *NESTED, *SHIFT, *SCALE, *MONOTONE, *CONSTANT)
