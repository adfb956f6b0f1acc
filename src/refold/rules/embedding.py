"""Rows of a table that are looked up: what is computed of each row is computed of the table.

A table that only parameters decide is so computed once until they change. That pays where the
table is small beside the rows that are looked up; where these are few, a computed table need not
be computed whole. Prices weigh it.
"""

from __future__ import annotations

from refold.rules.broadcasts import BINARY, ORDERED, UNARY, exact_of
from refold.rules.rule import Rule
from refold.rules.term import (
    AXES,
    REDUCTIONS,
    apply,
    embedding,
    held,
    is_unit_along,
    linear,
    log_softmax,
    mean,
    slice,
    softmax,
    sum,
    var,
)

_WHY = "What is computed of each row is computed of the table, whose rows are then looked up."
_FEWER = "Only the rows that are looked up need to be computed."

POINTWISE = (
    *(
        Rule(
            f"{op}-of-embedding",
            f"i# w[1,1,1,V,K]!{held(op)}",
            lambda i, w, op=op, **attrs: apply(op, embedding(i, w), **attrs),
            lambda i, w, op=op, **attrs: embedding(i, apply(op, w, **attrs)),
            exact_of(op),
            _WHY,
            simplify=False,
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"{op}-of-embedding-and-features",
            "i# w[1,1,1,V,K]! s!",
            lambda i, w, s, op=op: apply(op, embedding(i, w), s),
            lambda i, w, s, op=op: embedding(i, apply(op, w, s)),
            exact_of(op),
            _WHY,
            where=lambda i, w, s: is_unit_along(s, AXES[:-1]),
            simplify=False,
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"{op}-by-embedding",
            "i# w[1,1,1,V,K]! s!",
            lambda i, w, s, op=op: apply(op, s, embedding(i, w)),
            lambda i, w, s, op=op: embedding(i, apply(op, s, w)),
            "bits",
            _WHY,
            where=lambda i, w, s: is_unit_along(s, AXES[:-1]),
            simplify=False,
        )
        for op in ORDERED
    ),
    *(
        Rule(
            f"{op}-of-two-embeddings",
            "i# w[1,1,1,V,K]! v[1,1,1,V,_]!",
            lambda i, w, v, op=op: apply(op, embedding(i, w), embedding(i, v)),
            lambda i, w, v, op=op: embedding(i, apply(op, w, v)),
            exact_of(op),
            "Rows of the same numbers meet as rows of their tables do.",
            simplify=False,
        )
        for op in BINARY
    ),
)

ROWS = (
    *(
        Rule(
            f"{name}-of-embedding",
            "i# w[1,1,1,V,K]! @axes",
            lambda i, w, axes, f=f: f(embedding(i, w), axes),
            lambda i, w, axes, f=f: embedding(i, f(w, axes)),
            "reals",
            _WHY,
            where=lambda i, w, axes: axes == (-1,),
            simplify=False,
        )
        for name, f in REDUCTIONS.items()
    ),
    Rule(
        "var-of-embedding",
        "i# w[1,1,1,V,K]! @axes @correction",
        lambda i, w, axes, correction: var(embedding(i, w), axes, correction=correction),
        lambda i, w, axes, correction: embedding(i, var(w, axes, correction=correction)),
        "reals",
        _WHY,
        where=lambda i, w, axes, correction: axes == (-1,),
        simplify=False,
    ),
    *(
        Rule(
            f"{name}-of-embedding",
            "i# w[1,1,1,V,K]! @axis",
            lambda i, w, axis, f=f: f(embedding(i, w), axis),
            lambda i, w, axis, f=f: embedding(i, f(w, axis)),
            "reals",
            _WHY,
            where=lambda i, w, axis: axis == -1,
            simplify=False,
        )
        for name, f in (("softmax", softmax), ("log_softmax", log_softmax))
    ),
    Rule(
        "slice-of-embedding",
        "i# w[1,1,1,V,K]! @axis @start @length",
        lambda i, w, axis, start, length: slice(embedding(i, w), axis, start, length),
        lambda i, w, axis, start, length: embedding(i, slice(w, axis, start, length)),
        "bits",
        "Only the features that are kept need to be looked up.",
        where=lambda i, w, axis, start, length: axis == -1,
        simplify=False,
    ),
)

LINEAR = (
    Rule(
        "linear-of-embedding",
        "i# x[1,1,1,V,K] w[1,1,1,M,K]",
        lambda i, x, w: linear(embedding(i, x), w),
        lambda i, x, w: embedding(i, linear(x, w)),
        "reals",
        "A linear map of rows that are looked up is one of the table's rows.",
        simplify=False,
    ),
    Rule(
        "embedding-of-linear",
        "i# x[1,1,1,V,K] w[1,1,1,M,K]",
        lambda i, x, w: embedding(i, linear(x, w)),
        lambda i, x, w: linear(embedding(i, x), w),
        "reals",
        _FEWER,
        simplify=False,
    ),
    *(
        Rule(
            f"linear-of-{name}-of-embedding",
            "i# x[1,1,1,V,K]! w[1,1,1,M,K]! @axes",
            lambda i, x, w, axes, f=f: linear(f(embedding(i, x), axes), w),
            lambda i, x, w, axes, f=f: f(embedding(i, linear(x, w)), axes),
            "reals",
            f"A linear map of the {name} of rows is the {name} of mapped rows of the table.",
            where=lambda i, x, w, axes: -1 not in axes,
            simplify=False,
        )
        for name, f in (("sum", sum), ("mean", mean))
    ),
)

FEWER = (
    *(
        Rule(
            f"embedding-of-{op}",
            f"i# x[1,1,1,V,K]{held(op)}",
            lambda i, x, op=op, **attrs: embedding(i, apply(op, x, **attrs)),
            lambda i, x, op=op, **attrs: apply(op, embedding(i, x), **attrs),
            exact_of(op),
            _FEWER,
            simplify=False,
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"embedding-of-{op}-with-features",
            "i# x[1,1,1,V,K] s[1,1,1,1,K?]",
            lambda i, x, s, op=op: embedding(i, apply(op, x, s)),
            lambda i, x, s, op=op: apply(op, embedding(i, x), s),
            exact_of(op),
            _FEWER,
            simplify=False,
        )
        for op in BINARY
    ),
)

RULES = (*POINTWISE, *ROWS, *LINEAR, *FEWER)
