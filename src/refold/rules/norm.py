"""Normalisation: what it cannot see. Shifts leave centred values alone; so do softmax's logits."""

from __future__ import annotations

from refold.rules.rule import Rule
from refold.rules.safety import has_exponentials, is_lowered_by_max, may_be_masked
from refold.rules.term import (
    broadcasts_into,
    exp,
    is_unit_along,
    log,
    log_softmax,
    logsumexp,
    max,
    mean,
    softmax,
    sum,
)

RULES = (
    Rule(
        "equal-shifts-cancel",
        "x y b",
        lambda x, y, b: (x + b) - (y + b),
        lambda x, y, b: x - y,
        "finite",
        "What is added to both sides of a difference cancels: statistics ignore a bias.",
        where=lambda x, y, b: broadcasts_into(b, x) or broadcasts_into(b, y),
        mark="unsafe",
        safe=lambda x, y, b: not may_be_masked(b),
    ),
    Rule(
        "common-factor",
        "x y s",
        lambda x, y, s: x * s - y * s,
        lambda x, y, s: (x - y) * s,
        "reals",
        "A factor of both sides of a difference is a factor of the difference.",
    ),
    Rule(
        "mean-of-centred",
        "x @axes",
        lambda x, axes: mean(x - mean(x, axes), axes),
        lambda x, axes: mean(x, axes) - mean(x, axes),
        "reals",
        "Values centred about their mean have the mean zero.",
    ),
    Rule(
        "sum-of-centred",
        "x @axes",
        lambda x, axes: sum(x - mean(x, axes), axes),
        lambda x, axes: sum(x, axes) - sum(x, axes),
        "reals",
        "Values centred about their mean add up to zero.",
    ),
    *(
        Rule(
            f"{name}-ignores-shift",
            "x c @axis",
            lambda x, c, axis, f=f: f(x + c, axis),
            lambda x, c, axis, f=f: f(x, axis),
            "finite",
            f"A shift that is the same along the axis does not change a {name}.",
            where=lambda x, c, axis: is_unit_along(c, (axis,)) and broadcasts_into(c, x),
            mark="unsafe",
            safe=lambda x, c, axis: not may_be_masked(c),
        )
        for name, f in {"softmax": softmax, "log_softmax": log_softmax}.items()
    ),
    *(
        Rule(
            f"{name}-ignores-lowering",
            "x c @axis",
            lambda x, c, axis, f=f: f(x - c, axis),
            lambda x, c, axis, f=f: f(x, axis),
            "finite",
            f"A shift that is the same along the axis does not change a {name}.",
            where=lambda x, c, axis: is_unit_along(c, (axis,)) and broadcasts_into(c, x),
            mark="unsafe",
            safe=lambda x, c, axis: not may_be_masked(c) or is_lowered_by_max(x - c, (axis,)),
        )
        for name, f in {"softmax": softmax, "log_softmax": log_softmax}.items()
    ),
    Rule(
        "softmax-by-hand",
        "x @axes",
        lambda x, axes: exp(x) / sum(exp(x), axes),
        lambda x, axes: softmax(x, axes[0]),
        "reals",
        "Exponentials divided by their sum are a softmax.",
        where=lambda x, axes: len(axes) == 1,
        mark="unsafe",
        safe=lambda x, axes: has_exponentials(x) or is_lowered_by_max(x, axes),
    ),
    Rule(
        "log-softmax-by-hand",
        "x @axes",
        lambda x, axes: x - logsumexp(x, axes),
        lambda x, axes: log_softmax(x, axes[0]),
        "reals",
        "Values lowered by the logarithm of their summed exponentials are a log-softmax.",
        where=lambda x, axes: len(axes) == 1,
    ),
    Rule(
        "log-of-softmax",
        "x @axis",
        lambda x, axis: log(softmax(x, axis)),
        lambda x, axis: log_softmax(x, axis),
        "reals",
        "The logarithm of a softmax is a log-softmax.",
    ),
    Rule(
        "exp-of-log-softmax",
        "x @axis",
        lambda x, axis: exp(log_softmax(x, axis)),
        lambda x, axis: softmax(x, axis),
        "reals",
        "The exponential of a log-softmax is a softmax.",
    ),
    Rule(
        "logsumexp-by-hand",
        "x @axes",
        lambda x, axes: log(sum(exp(x), axes)),
        lambda x, axes: logsumexp(x, axes),
        "reals",
        "The logarithm of summed exponentials is a logsumexp.",
    ),
    Rule(
        "stable-logsumexp-by-hand",
        "x @axes",
        lambda x, axes: logsumexp(x - max(x, axes), axes) + max(x, axes),
        lambda x, axes: logsumexp(x, axes),
        "finite",
        "A logsumexp lowered by its maximum and raised again is itself.",
        mark="unsafe",
        safe=lambda x, axes: not may_be_masked(x),
    ),
)
