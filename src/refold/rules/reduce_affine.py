"""Reductions of values that are shifted or scaled alike."""

from __future__ import annotations

from typing import Any

from refold.rules.rule import Mark, Rule
from refold.rules.safety import (
    is_lowered_by_max,
    is_map,
    is_nonzero,
    is_parameter,
    is_tame,
    may_be_masked,
)
from refold.rules.term import (
    LINEAR,
    SELECTING,
    Term,
    avg_pool,
    broadcast_sum,
    broadcasts_into,
    cumsum,
    is_unit_along,
    logsumexp,
    max,
    mean,
    min,
    square,
    sum,
    var,
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

SHIFT = (
    Rule(
        "sum-of-shifted",
        "x b! @axes",
        lambda x, b, axes: sum(x + b, axes),
        lambda x, b, axes: sum(x, axes) + broadcast_sum(b, x, axes),
        "reals",
        "The sum of shifted values is their sum plus the sum of the shifts.",
        where=lambda x, b, axes: broadcasts_into(b, x),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x),
    ),
    Rule(
        "sum-of-evenly-shifted",
        "x b @axes",
        lambda x, b, axes: sum(x + b, axes),
        lambda x, b, axes: sum(x, axes) + broadcast_sum(b, x, axes),
        "reals",
        "The sum of values shifted alike is their sum plus so many shifts.",
        where=lambda x, b, axes: is_unit_along(b, axes),
        mark="cancels",
        safe=lambda x, b, axes: is_map(x) or is_map(b),
    ),
    Rule(
        "sum-of-evenly-lowered",
        "x b @axes",
        lambda x, b, axes: sum(x - b, axes),
        lambda x, b, axes: sum(x, axes) - broadcast_sum(b, x, axes),
        "reals",
        "The sum of values lowered alike is their sum minus so many shifts.",
        where=lambda x, b, axes: is_unit_along(b, axes),
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
        where=lambda x, b, axes: is_unit_along(b, axes),
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
        where=lambda x, b, axes: is_unit_along(b, axes),
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
        where=lambda x, b, axes, correction: is_unit_along(b, axes) and broadcasts_into(b, x),
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
            where=lambda x, c, axes: is_unit_along(c, axes),
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
            where=lambda x, c, axes: is_unit_along(c, axes),
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
            where=lambda x, s, axes: is_unit_along(s, axes),
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
            where=lambda x, s, axes: is_unit_along(s, axes),
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
            where=lambda x, s, axes: is_unit_along(s, axes),
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
            where=lambda x, s, axes: is_unit_along(s, axes),
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
        where=lambda x, s, axes, correction: is_unit_along(s, axes),
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
        where=lambda x, s, axis: is_unit_along(s, (axis,)),
    ),
)
