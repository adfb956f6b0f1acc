"""How linear maps compose: one after the other, added, side by side, and with diagonal ones."""

from __future__ import annotations

from refold.ir import Dim
from refold.rules.rule import Rule
from refold.rules.safety import is_parameter, may_be_ordered
from refold.rules.term import TRANSPOSE, Term, cat, diagonal, linear, permute, slice, transpose


def _cut_apart(y: Term, at: Dim) -> tuple[Term, Term]:
    """The features before `at` and those from it on."""
    return slice(y, -1, 0, at), slice(y, -1, at, y.shape[-1] - at)


COMPOSE = (
    Rule(
        "two-maps-as-one",
        "x[N,K] w[M,K] v[P,M]",
        lambda x, w, v: linear(linear(x, w), v),
        lambda x, w, v: linear(x, linear(v, transpose(w))),
        "reals",
        "Two linear maps after each other are one, whose weight is the product of their weights.",
        simplify=False,
        mark="range",
        safe=lambda x, w, v: may_be_ordered(x, w, v),
    ),
    Rule(
        "one-map-as-two",
        "x[N,K] v[M,R] u[K,R]",
        lambda x, v, u: linear(x, linear(v, u)),
        lambda x, v, u: linear(linear(x, transpose(u)), v),
        "reals",
        "A weight that is a thin product is cheaper applied one factor after the other.",
        simplify=False,
        mark="range",
        safe=lambda x, v, u: may_be_ordered(x, v, u),
    ),
    Rule(
        "one-transposed-map-as-two",
        "x[N,K] v[M,R] u[K,R]",
        lambda x, v, u: linear(x, transpose(linear(u, v))),
        lambda x, v, u: linear(linear(x, transpose(u)), v),
        "reals",
        "A weight that is a thin product is cheaper applied one factor after the other.",
        simplify=False,
        mark="range",
        safe=lambda x, v, u: may_be_ordered(x, v, u),
    ),
    Rule(
        "one-scaled-map-as-two",
        "x[N,K] v[M,R] u[K,R] s[M?,1]",
        lambda x, v, u, s: linear(x, linear(v, u) * s),
        lambda x, v, u, s: linear(linear(x, transpose(u)), v * s),
        "reals",
        "A weight that is a thin product is cheaper applied one factor after the other.",
        simplify=False,
        mark="range",
        safe=lambda x, v, u, s: may_be_ordered(x, v, u) and is_parameter(s),
    ),
    Rule(
        "one-transposed-scaled-map-as-two",
        "x[N,K] v[M,R] u[K,R] s[1,M?]",
        lambda x, v, u, s: linear(x, transpose(linear(u, v) * s)),
        lambda x, v, u, s: linear(linear(x, transpose(u)), v * transpose(s)),
        "reals",
        "A weight that is a thin product is cheaper applied one factor after the other.",
        simplify=False,
        mark="range",
        safe=lambda x, v, u, s: may_be_ordered(x, v, u) and is_parameter(s),
    ),
    Rule(
        "outer-product",
        "x[N,1] w[M,1]",
        lambda x, w: linear(x, w),
        lambda x, w: x * transpose(w),
        "reals",
        "A product over a single element multiplies each row with each column.",
    ),
    Rule(
        "transposed-product",
        "x[N,K] w[M,K]",
        lambda x, w: transpose(linear(x, w)),
        lambda x, w: linear(w, x),
        "reals",
        "The transpose of a product exchanges its operands.",
        simplify=False,
    ),
)

DIAGONAL = (
    Rule(
        "product-with-diagonal",
        "x d",
        lambda x, d: linear(x, diagonal(d)),
        lambda x, d: x * d,
        "finite",
        "A product with a diagonal matrix scales the features.",
    ),
    Rule(
        "diagonal-with-product",
        "x d",
        lambda x, d: linear(diagonal(d), x),
        lambda x, d: transpose(x * d),
        "finite",
        "A diagonal matrix from the left scales the rows.",
    ),
    Rule(
        "transposed-diagonal",
        "d @order",
        lambda d, order: permute(diagonal(d), order),
        lambda d, order: diagonal(d),
        "bits",
        "A diagonal matrix is its own transpose.",
        where=lambda d, order: order == TRANSPOSE,
    ),
)

PAIRS = (
    Rule(
        "two-maps-of-one-input",
        "x[N,K] w[1,1,1,M,K]! v[1,1,1,P,K]!",
        lambda x, w, v: (linear(x, w), linear(x, v)),
        lambda x, w, v: _cut_apart(linear(x, cat(w, v, -2)), w.shape[-2]),
        "reals",
        "Two linear maps of one input are one product with both weights, cut apart.",
        simplify=False,
    ),
)

RULES = (*COMPOSE, *DIAGONAL, *PAIRS)
