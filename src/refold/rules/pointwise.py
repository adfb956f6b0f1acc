"""Arithmetic: chains of scales and shifts in one normal form, identities, ranges.

Shifts and scales by parameters become `x * a + b`: a subtraction is an addition of the negative, a
division a product with the reciprocal, and parameters meet on one side, where they are folded.
"""

from __future__ import annotations

from refold.ir import OPS
from refold.rules.rule import Rule
from refold.rules.safety import at_least, is_map, is_nonzero, is_ordinary, may_be_masked
from refold.rules.term import (
    Term,
    abs,
    apply,
    broadcasts_into,
    constant,
    exp,
    log,
    maximum,
    minimum,
    neg,
    pow,
    reciprocal,
    relu,
    rsqrt,
    shape_of,
    smaller,
    sqrt,
    square,
)


def _meet(a: Term, b: Term) -> bool:
    """Do two parameters meet without becoming a larger one (a row and a column would)?"""
    return shape_of(a, b) in (a.shape, b.shape)


def _vectors(x: Term, a: Term, b: Term) -> bool:
    """Are both factors small beside x, so that multiplying them first saves work?"""
    return smaller(a, x) and smaller(b, x) and shape_of(a, b) != x.shape


AFFINE = (
    Rule(
        "minus-parameter",
        "x b!",
        lambda x, b: x - b,
        lambda x, b: x + neg(b),
        "bits",
        "To subtract a parameter is to add its negative.",
    ),
    Rule(
        "parameter-minus",
        "x b!",
        lambda x, b: b - x,
        lambda x, b: x * -1.0 + b,
        "bits",
        "To subtract from a parameter is to add to it the negative.",
    ),
    Rule(
        "negative",
        "x",
        lambda x: neg(x),
        lambda x: x * -1.0,
        "bits",
        "The negative is minus one times the value.",
    ),
    Rule(
        "divided-by-parameter",
        "x s!",
        lambda x, s: x / s,
        lambda x, s: x * reciprocal(s),
        "reals",
        "To divide by a parameter is to multiply by its reciprocal.",
    ),
    Rule(
        "scales-meet",
        "x a! b!",
        lambda x, a, b: (x * a) * b,
        lambda x, a, b: x * (a * b),
        "reals",
        "Two scales after each other are one.",
        simplify=lambda x, a, b: _meet(a, b),
        mark="range",
    ),
    Rule(
        "shifts-meet",
        "x a! b!",
        lambda x, a, b: (x + a) + b,
        lambda x, a, b: x + (a + b),
        "reals",
        "Two shifts after each other are one.",
        simplify=lambda x, a, b: _meet(a, b),
        mark="cancels",
        safe=lambda x, a, b: is_map(x),
    ),
    Rule(
        "scale-of-shifted",
        "x a! b!",
        lambda x, a, b: (x + a) * b,
        lambda x, a, b: x * b + a * b,
        "reals",
        "A scale of a shifted value is a shift of the scaled value.",
        simplify=lambda x, a, b: _meet(a, b),
        mark="cancels",
        safe=lambda x, a, b: is_map(x),
    ),
    Rule(
        "vectors-first",
        "x a b",
        lambda x, a, b: (x * a) * b,
        lambda x, a, b: x * (a * b),
        "reals",
        "Factors smaller than the value are multiplied with each other first.",
        simplify=_vectors,
        mark="range",
        safe=lambda x, a, b: is_ordinary(a) or is_ordinary(b),
    ),
    Rule(
        "minus-negative",
        "x y",
        lambda x, y: x + y * -1.0,
        lambda x, y: x - y,
        "bits",
        "To add the negative is to subtract.",
        simplify=False,
    ),
)

IDENTITIES = (
    Rule("times-one", "x", lambda x: x * 1.0, lambda x: x, "bits", "One times a value is it."),
    Rule("plus-zero", "x", lambda x: x + 0.0, lambda x: x, "reals", "Zero added changes nothing."),
    Rule(
        "minus-itself",
        "x",
        lambda x: x - x,
        lambda x: constant(0, x),
        "finite",
        "A value minus itself is zero.",
        mark="unsafe",
        safe=lambda x: not may_be_masked(x),
    ),
    Rule(
        "divided-by-itself",
        "x",
        lambda x: x / x,
        lambda x: constant(1, x),
        "finite",
        "A value divided by itself is one wherever it is not zero.",
        simplify=False,
        mark="unsafe",
        safe=lambda x: is_nonzero(x) and not may_be_masked(x),
    ),
    Rule(
        "twice",
        "x",
        lambda x: x + x,
        lambda x: x * 2.0,
        "bits",
        "A value added to itself is twice the value.",
    ),
    Rule(
        "itself-squared",
        "x",
        lambda x: x * x,
        lambda x: square(x),
        "bits",
        "A value times itself is its square.",
    ),
    *(
        Rule(
            f"to-the-power-of-{word}",
            "x",
            lambda x, k=k: pow(x, k),
            lambda x, f=f: f(x),
            "reals",
            f"The power of {word} is a single operation or none.",
        )
        for word, k, f in (
            ("one", 1.0, lambda x: x),
            ("two", 2.0, square),
            ("minus-one", -1.0, reciprocal),
        )
    ),
    Rule("log-of-exp", "x", lambda x: log(exp(x)), lambda x: x, "reals", "Log undoes exp."),
    Rule(
        "log-of-sqrt",
        "x",
        lambda x: log(sqrt(x)),
        lambda x: log(x) * 0.5,
        "reals",
        "The logarithm of a root is half the logarithm.",
    ),
    Rule(
        "exp-of-log",
        "x+",
        lambda x: exp(log(x)),
        lambda x: x,
        "reals",
        "Exp undoes log where the value is not negative.",
    ),
    Rule(
        "root-of-square",
        "x",
        lambda x: sqrt(square(x)),
        lambda x: abs(x),
        "reals",
        "The root of a square is the magnitude.",
    ),
    Rule(
        "square-of-root",
        "x+",
        lambda x: square(sqrt(x)),
        lambda x: x,
        "reals",
        "Squaring undoes the root where the value is not negative.",
    ),
    Rule(
        "one-over-root",
        "x",
        lambda x: reciprocal(sqrt(x)),
        lambda x: rsqrt(x),
        "reals",
        "One over a root is a single operation.",
    ),
    Rule(
        "division-by-root",
        "x y",
        lambda x, y: x / sqrt(y),
        lambda x, y: x * rsqrt(y),
        "reals",
        "To divide by a root is to multiply by its reciprocal, a single operation.",
    ),
    *(
        Rule(
            f"mish-by-{word}",
            "x",
            lambda x, f=f: x * apply("tanh", f(x)),
            lambda x: apply("mish", x),
            "reals",
            "A value times the hyperbolic tangent of its softplus is its mish, of one exponential.",
            simplify=True,
        )
        for word, f in (
            ("softplus", lambda x: apply("softplus", x, beta=1.0, threshold=20.0)),
            ("logarithm", lambda x: apply("log1p", exp(x))),
        )
    ),
    *(
        Rule(
            f"{op}-twice",
            "x",
            lambda x, op=op: apply(op, apply(op, x)),
            lambda x, op=op: apply(op, x),
            "bits",
            f"A second {op} changes nothing.",
        )
        for op, row in OPS.items()
        if row.idempotent
    ),
    *(
        Rule(
            f"{name}-of-itself",
            "x",
            lambda x, f=f: f(x, x),
            lambda x: x,
            "bits",
            f"The {name} of a value and itself is the value.",
        )
        for name, f in {"maximum": maximum, "minimum": minimum}.items()
    ),
)

RANGES = (
    Rule(
        "relu-of-nonnegative",
        "x+",
        lambda x: relu(x),
        lambda x: x,
        "reals",
        "A value that is never negative passes a rectifier unchanged.",
    ),
    Rule(
        "abs-of-nonnegative",
        "x+",
        lambda x: abs(x),
        lambda x: x,
        "reals",
        "A value that is never negative is its own magnitude.",
    ),
    Rule(
        "abs-in-square",
        "x",
        lambda x: square(abs(x)),
        lambda x: square(x),
        "bits",
        "A square does not see the sign.",
    ),
    Rule(
        "lower-bound-already-held",
        "x c",
        lambda x, c: maximum(x, c),
        lambda x, c: x,
        "finite",
        "A value that never falls below the bound is not changed by it.",
        where=lambda x, c: at_least(x, c) and broadcasts_into(c, x),
    ),
    Rule(
        "upper-bound-already-held",
        "x c",
        lambda x, c: minimum(x, c),
        lambda x, c: x,
        "finite",
        "A value that never rises above the bound is not changed by it.",
        where=lambda x, c: at_least(c, x) and broadcasts_into(c, x),
    ),
    Rule(
        "lower-bound-always-reached",
        "x c",
        lambda x, c: maximum(x, c),
        lambda x, c: c,
        "finite",
        "A value that never rises above the bound is the bound.",
        where=lambda x, c: at_least(c, x) and broadcasts_into(x, c),
    ),
)

RULES = (*AFFINE, *IDENTITIES, *RANGES)
