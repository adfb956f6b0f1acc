"""Reductions of values that are shifted or scaled alike."""

from __future__ import annotations

from typing import Any

from refold.rules.rule import Mark, Rule
from refold.rules.safety import (
    is_lowered_by_max,
    is_map,
    is_parameter,
    is_tame,
    may_be_masked,
)
from refold.rules.term import (
    SELECTING,
    Term,
    broadcasts_into,
    is_unit_along,
    logsumexp,
    max,
    min,
    square,
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
)

SCALE = (
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
)
