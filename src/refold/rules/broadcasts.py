"""Values that are spread over more elements: arithmetic comes before, or spreads them by itself."""

from __future__ import annotations

from refold.ir import OPS, Dim, Kind
from refold.ir.shapes import broadcast, pointwise
from refold.rules.rule import Exact, Rule
from refold.rules.term import Term, apply, expand, held, select, shape_of

_OF_ONE = [r for r in OPS.values() if r.kind is Kind.POINTWISE and r.arity == 1]
UNARY = [r.name for r in _OF_ONE if r.infer is pointwise]
# The others are rounded as the library's vector code has it, which may treat the last few elements
# of a row differently: moving an element may change its last bit.
# Which zero maximum(0, -0) gives may depend on the place, too.
_BITWISE = {r.name for r in OPS.values() if r.is_exact and not (r.selects and r.arity == 2)}
BINARY = [r.name for r in OPS.values() if r.is_arithmetic or (r.selects and r.arity == 2)]
# those whose operands may not change places
ORDERED = [op for op in BINARY if not OPS[op].commutative]


def exact_of(op: str) -> Exact:
    return "bits" if op in _BITWISE else "reals"


def expanded_at(place: int, shape: tuple[Dim, ...], *terms: Term) -> list[Term]:
    """The terms, the one at `place` expanded."""
    return [expand(t, shape) if i == place else t for i, t in enumerate(terms)]


def keeps_shape(place: int, shape: tuple[Dim, ...], *terms: Term) -> bool:
    """Have the terms by themselves the shape that they have with the one at `place` expanded?"""
    x, y, z = (t.shape for t in terms)
    a, b, c = (shape if i == place else t.shape for i, t in enumerate(terms))
    return broadcast(broadcast(x, y), z) == broadcast(broadcast(a, b), c)


RULES = (
    Rule(
        "expand-to-itself",
        "x @shape",
        lambda x, shape: expand(x, shape),
        lambda x, shape: x,
        "bits",
        "The shape is already this one.",
        where=lambda x, shape: x.shape == shape,
    ),
    Rule(
        "expand-of-expand",
        "x @shape1 @shape2",
        lambda x, shape1, shape2: expand(expand(x, shape1), shape2),
        lambda x, shape1, shape2: expand(x, shape2),
        "bits",
        "Only the last of two expansions counts.",
    ),
    *(
        Rule(
            f"{op}-with-expanded",
            "x y @shape",
            lambda x, y, shape, op=op: apply(op, x, expand(y, shape)),
            lambda x, y, shape, op=op: expand(apply(op, x, y), shape_of(x, expand(y, shape))),
            exact_of(op),
            "Arithmetic of smaller values comes before they are spread.",
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"{op}-of-expanded-by",
            "x y @shape",
            lambda x, y, shape, op=op: apply(op, expand(y, shape), x),
            lambda x, y, shape, op=op: expand(apply(op, y, x), shape_of(x, expand(y, shape))),
            "bits",
            "Arithmetic of smaller values comes before they are spread.",
        )
        for op in ORDERED
    ),
    *(
        Rule(
            f"{op}-of-expanded",
            f"x @shape{held(op)}",
            lambda x, shape, op=op, **attrs: apply(op, expand(x, shape), **attrs),
            lambda x, shape, op=op, **attrs: expand(apply(op, x, **attrs), shape),
            exact_of(op),
            "A function of each element can be taken before the value is spread.",
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"where-{name}",
            "m? x y @shape",
            lambda m, x, y, shape, place=place: select(*expanded_at(place, shape, m, x, y)),
            lambda m, x, y, shape: select(m, x, y),
            "bits",
            "What is spread over a mask, or a mask over values, is so without being expanded.",
            where=lambda m, x, y, shape, place=place: keeps_shape(place, shape, m, x, y),
        )
        for place, name in enumerate(("by-expanded", "of-expanded", "else-expanded"))
    ),
)
