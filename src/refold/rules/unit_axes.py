"""Axes of one element: where they stand changes nothing, so what is computed passes them by.

A reshape that only moves, adds or drops axes of size one moves no element. Everything is computed
before it, as far as that goes: kernels of rows meet no other layout in between, and one is left in
front of what needs it, or at the end.
"""

from __future__ import annotations

from refold.ir import Dim
from refold.ir.shapes import RANK
from refold.rules.broadcasts import BINARY, ORDERED, exact_of
from refold.rules.rule import Rule
from refold.rules.term import (
    AXES,
    REDUCTIONS,
    Term,
    apply,
    is_unit_along,
    log_softmax,
    permute,
    reshape,
    shape_of,
    softmax,
)

Shape = tuple[Dim, ...]


def _non_unit_axes(shape: Shape) -> tuple[int, ...]:
    """The axes of more than one element."""
    return tuple(a for a in AXES if shape[a] != 1)


def _spaced(x: Shape, shape: Shape) -> bool:
    """Are the axes of more than one element the same, in the same order?"""
    return [x[a] for a in _non_unit_axes(x)] == [shape[a] for a in _non_unit_axes(shape)]


def _before(x: Shape, shape: Shape, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of x that became `axes` of shape."""
    became = dict(zip(_non_unit_axes(shape), _non_unit_axes(x), strict=True))
    return tuple(sorted(became[a] for a in axes if a in became))


def _respaced(s: Term, x: Shape, shape: Shape) -> Term:
    """`s`, which fits into `shape`, so that it fits into x."""
    sizes: list[Dim] = [1] * RANK
    for here, there in zip(_non_unit_axes(shape), _non_unit_axes(x), strict=True):
        sizes[there] = s.shape[here]
    return reshape(s, tuple(sizes))


def _order(shape: Shape, order: tuple[int, ...]) -> bool:
    """Do the axes of more than one element keep their order?"""
    moved = [a for a in order if shape[a] != 1]
    return moved == sorted(moved)


def _meets_before(x: Term, s: Term, shape: Shape) -> bool:
    """Can `s` meet x before it is respaced, and would it have to be respaced itself?

    A number, or one value for each feature that stays last, is met by simpler rules.
    """
    if x.shape == shape or not _spaced(x.shape, shape):
        return False
    return not is_unit_along(s, AXES) and shape_of(reshape(x, shape), s) == shape


_ALONG = {"softmax": softmax, "log_softmax": log_softmax}

RULES = (
    Rule(
        "permute-of-ones",
        "x @order",
        lambda x, order: permute(x, order),
        lambda x, order: reshape(x, tuple(x.shape[a] for a in order)),
        "bits",
        "Where only axes of one element change places, no element moves.",
        where=lambda x, order: _order(x.shape, order),
    ),
    *(
        Rule(
            f"{op}-of-respaced",
            "x s @shape",
            lambda x, s, shape, op=op: apply(op, reshape(x, shape), s),
            lambda x, s, shape, op=op: reshape(apply(op, x, _respaced(s, x.shape, shape)), shape),
            exact_of(op),
            "Axes of one element can be moved after arithmetic as well.",
            where=lambda x, s, shape: _meets_before(x, s, shape),
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"{op}-by-respaced",
            "x s @shape",
            lambda x, s, shape, op=op: apply(op, s, reshape(x, shape)),
            lambda x, s, shape, op=op: reshape(apply(op, _respaced(s, x.shape, shape), x), shape),
            exact_of(op),
            "Axes of one element can be moved after arithmetic as well.",
            where=lambda x, s, shape: _meets_before(x, s, shape),
        )
        for op in ORDERED
    ),
    *(
        Rule(
            f"{name}-of-respaced",
            "x @shape @axes",
            lambda x, shape, axes, f=f: f(reshape(x, shape), axes),
            lambda x, shape, axes, f=f: reshape(
                f(x, _before(x.shape, shape, axes)),
                tuple(1 if a in axes else shape[a] for a in AXES),
            ),
            "reals",
            "A reduction does not see axes of one element.",
            where=lambda x, shape, axes: (
                x.shape != shape and _spaced(x.shape, shape) and bool(_before(x.shape, shape, axes))
            ),
        )
        for name, f in REDUCTIONS.items()
    ),
    *(
        Rule(
            f"{name}-of-respaced",
            "x @shape @axis",
            lambda x, shape, axis, f=f: f(reshape(x, shape), axis),
            lambda x, shape, axis, f=f: reshape(f(x, *_before(x.shape, shape, (axis,))), shape),
            "reals",
            "A softmax does not see axes of one element.",
            where=lambda x, shape, axis: (
                x.shape != shape
                and _spaced(x.shape, shape)
                and bool(_before(x.shape, shape, (axis,)))
            ),
        )
        for name, f in _ALONG.items()
    ),
)
