"""Parts of values: what decides a part is computed of that part alone, or, where all parts are
needed, of the whole at once."""

from __future__ import annotations

from refold.ir import OPS, Dim, Kind, numel
from refold.ir.shapes import RANK
from refold.rules.broadcasts import BINARY, UNARY, exact_of
from refold.rules.rule import Rule
from refold.rules.term import (
    AXES,
    REDUCTIONS,
    Term,
    apply,
    broadcasts_into,
    cat,
    cumsum,
    expand,
    held,
    is_unit_along,
    linear,
    log_softmax,
    permute,
    reshape,
    select,
    slice,
    softmax,
    var,
)


def _joiner(name: str) -> str:
    """The op that makes the reduction of two parts' results; empty where there is none."""
    how = OPS[name].reduction
    return (how.joined_by if how else None) or ""


def _part(x: Term, axis: int, start: Dim, length: Dim) -> Term:
    """What decides a slice of a value that `x` is spread to."""
    return x if x.shape[axis] == 1 else slice(x, axis, start, length)


def _with(shape: tuple[Dim, ...], axis: int, length: Dim) -> tuple[Dim, ...]:
    return tuple(length if a == axis else d for a, d in zip(AXES, shape, strict=True))


def _kept_as(x: Term, shape: tuple[Dim, ...], axis: int) -> int | None:
    """The axis of `x` that a reshape to `shape` leaves as `axis`; None where it leaves none."""
    before = numel(shape[:axis])
    for a, size in zip(AXES, x.shape, strict=True):
        if size == shape[axis] != 1 and numel(x.shape[:a]) == before:
            return a
    return None


def _cut_before(x: Term, shape: tuple[Dim, ...], axis: int, start: Dim, length: Dim) -> Term:
    at = _kept_as(x, shape, axis)
    if at is None:
        raise ValueError("the reshape does not keep the axis")
    return reshape(slice(x, at, start, length), _with(shape, axis, length))


_OF_TWO = [r.name for r in OPS.values() if r.kind is Kind.POINTWISE and r.arity == 2]
_ONLY = "Only the elements that are kept need to be computed."

SLICE = (
    Rule(
        "slice-of-everything",
        "x @axis @start @length",
        lambda x, axis, start, length: slice(x, axis, start, length),
        lambda x, axis, start, length: x,
        "bits",
        "The slice keeps every element.",
        where=lambda x, axis, start, length: x.shape[axis] == length,
    ),
    Rule(
        "slice-of-slice",
        "x @axis @start1 @length1 @start2 @length2",
        lambda x, axis, start1, length1, start2, length2: slice(
            slice(x, axis, start1, length1), axis, start2, length2
        ),
        lambda x, axis, start1, length1, start2, length2: slice(x, axis, start1 + start2, length2),
        "bits",
        "A slice of a slice is one slice.",
    ),
    Rule(
        "slice-of-first",
        "x y @axis @start @length",
        lambda x, y, axis, start, length: slice(cat(x, y, axis), axis, start, length),
        lambda x, y, axis, start, length: slice(x, axis, start, length),
        "bits",
        "The slice lies in the first of the joined values.",
        where=lambda x, y, axis, start, length: (
            isinstance(x.shape[axis], int) and start + length <= x.shape[axis]
        ),
    ),
    Rule(
        "slice-of-second",
        "x y @axis @start @length",
        lambda x, y, axis, start, length: slice(cat(x, y, axis), axis, start, length),
        lambda x, y, axis, start, length: slice(y, axis, start - x.shape[axis], length),
        "bits",
        "The slice lies in the second of the joined values.",
        where=lambda x, y, axis, start, length: (
            isinstance(x.shape[axis], int) and start >= x.shape[axis]
        ),
    ),
    *(
        Rule(
            f"slice-of-{op}",
            f"x @axis @start @length{held(op)}",
            lambda x, axis, start, length, op=op, **attrs: slice(
                apply(op, x, **attrs), axis, start, length
            ),
            lambda x, axis, start, length, op=op, **attrs: apply(
                op, slice(x, axis, start, length), **attrs
            ),
            exact_of(op),
            _ONLY,
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"slice-of-{op}",
            "x y @axis @start @length",
            lambda x, y, axis, start, length, op=op: slice(apply(op, x, y), axis, start, length),
            lambda x, y, axis, start, length, op=op: apply(
                op, _part(x, axis, start, length), _part(y, axis, start, length)
            ),
            exact_of(op),
            _ONLY,
        )
        for op in _OF_TWO
    ),
    Rule(
        "slice-of-choice",
        "c? x y @axis @start @length",
        lambda c, x, y, axis, start, length: slice(select(c, x, y), axis, start, length),
        lambda c, x, y, axis, start, length: select(
            *(_part(v, axis, start, length) for v in (c, x, y))
        ),
        "bits",
        _ONLY,
    ),
    *(
        Rule(
            f"slice-of-{name}",
            "x @axes @axis @start @length",
            lambda x, axes, axis, start, length, f=f: slice(f(x, axes), axis, start, length),
            lambda x, axes, axis, start, length, f=f: f(slice(x, axis, start, length), axes),
            "reals",
            "Only the rows that are kept need to be reduced.",
            where=lambda x, axes, axis, start, length: axis not in axes,
        )
        for name, f in REDUCTIONS.items()
    ),
    Rule(
        "slice-of-var",
        "x @axes @correction @axis @start @length",
        lambda x, axes, correction, axis, start, length: slice(
            var(x, axes, correction=correction), axis, start, length
        ),
        lambda x, axes, correction, axis, start, length: var(
            slice(x, axis, start, length), axes, correction=correction
        ),
        "reals",
        "Only the rows that are kept need to be reduced.",
        where=lambda x, axes, correction, axis, start, length: axis not in axes,
    ),
    *(
        Rule(
            f"slice-of-{name}",
            "x @axis1 @axis2 @start @length",
            lambda x, axis1, axis2, start, length, f=f: slice(f(x, axis1), axis2, start, length),
            lambda x, axis1, axis2, start, length, f=f: f(slice(x, axis2, start, length), axis1),
            "reals",
            "Only the rows that are kept need to be normalised.",
            where=lambda x, axis1, axis2, start, length: axis1 != axis2,
        )
        for name, f in (("softmax", softmax), ("log_softmax", log_softmax), ("cumsum", cumsum))
    ),
    Rule(
        "slice-of-expanded",
        "x @shape @axis @start @length",
        lambda x, shape, axis, start, length: slice(expand(x, shape), axis, start, length),
        lambda x, shape, axis, start, length: expand(
            _part(x, axis, start, length), _with(shape, axis, length)
        ),
        "bits",
        "A part of a value that is spread is a part of it, spread.",
    ),
    Rule(
        "slice-of-permuted",
        "x @order @axis @start @length",
        lambda x, order, axis, start, length: slice(permute(x, order), axis, start, length),
        lambda x, order, axis, start, length: permute(
            slice(x, order[axis] - RANK, start, length), order
        ),
        "bits",
        "A part can be taken before the axes change places.",
    ),
    Rule(
        "slice-of-reshaped",
        "x @shape @axis @start @length",
        lambda x, shape, axis, start, length: slice(reshape(x, shape), axis, start, length),
        lambda x, shape, axis, start, length: _cut_before(x, shape, axis, start, length),
        "bits",
        "A part along an axis that a reshape keeps can be taken before it.",
        where=lambda x, shape, axis, start, length: _kept_as(x, shape, axis) is not None,
    ),
)

WHOLE = (
    Rule(
        "product-of-part",
        "x w @axis @start @length",
        lambda x, w, axis, start, length: linear(slice(x, axis, start, length), w),
        lambda x, w, axis, start, length: slice(linear(x, w), axis, start, length),
        "reals",
        "Parts of a value that meet one weight are parts of one product.",
        where=lambda x, w, axis, start, length: axis != -1 and is_unit_along(w, AXES[:-2]),
        simplify=False,
    ),
    *(
        Rule(
            f"{op}-of-part",
            f"x @axis @start @length{held(op)}",
            lambda x, axis, start, length, op=op, **attrs: apply(
                op, slice(x, axis, start, length), **attrs
            ),
            lambda x, axis, start, length, op=op, **attrs: slice(
                apply(op, x, **attrs), axis, start, length
            ),
            exact_of(op),
            "What is done to every part is done to the whole.",
            simplify=False,
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"{op}-of-part-and-even",
            "x s @axis @start @length",
            lambda x, s, axis, start, length, op=op: apply(op, slice(x, axis, start, length), s),
            lambda x, s, axis, start, length, op=op: slice(apply(op, x, s), axis, start, length),
            exact_of(op),
            "What is done to every part is done to the whole.",
            where=lambda x, s, axis, start, length: is_unit_along(s, (axis,)),
            simplify=False,
        )
        for op in BINARY
    ),
)

CAT = (
    Rule(
        "joined-features",
        "x[N,K] w[1,1,1,M,K]! v[1,1,1,P,K]! @axis",
        lambda x, w, v, axis: cat(linear(x, w), linear(x, v), axis),
        lambda x, w, v, axis: linear(x, cat(w, v, -2)),
        "reals",
        "Two linear maps of one input side by side are one map with both weights.",
        where=lambda x, w, v, axis: axis == -1,
    ),
    Rule(
        "joined-inputs",
        "x y w[1,1,1,M,K]!",
        lambda x, y, w: linear(cat(x, y, -1), w),
        lambda x, y, w: (
            linear(x, slice(w, -1, 0, x.shape[-1]))
            + linear(y, slice(w, -1, x.shape[-1], y.shape[-1]))
        ),
        "reals",
        "A linear map of joined inputs is the sum of a map of each.",
        simplify=False,
    ),
    Rule(
        "joined-rows",
        "x y w @axis",
        lambda x, y, w, axis: cat(linear(x, w), linear(y, w), axis),
        lambda x, y, w, axis: linear(cat(x, y, axis), w),
        "reals",
        "One linear map of two batches is the map of the joined batch.",
        where=lambda x, y, w, axis: axis != -1 and is_unit_along(w, AXES[:-2]),
        simplify=False,
    ),
    *(
        Rule(
            f"joined-{op}",
            f"x y @axis{held(op)}",
            lambda x, y, axis, op=op, **attrs: cat(
                apply(op, x, **attrs), apply(op, y, **attrs), axis
            ),
            lambda x, y, axis, op=op, **attrs: apply(op, cat(x, y, axis), **attrs),
            exact_of(op),
            "What is done to every part is done to the whole.",
            simplify=False,
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"joined-{op}-with-even",
            "x y s @axis",
            lambda x, y, s, axis, op=op: cat(apply(op, x, s), apply(op, y, s), axis),
            lambda x, y, s, axis, op=op: apply(op, cat(x, y, axis), s),
            exact_of(op),
            "What is done to every part is done to the whole.",
            where=lambda x, y, s, axis: (
                is_unit_along(s, (axis,)) and broadcasts_into(s, x) and broadcasts_into(s, y)
            ),
            simplify=False,
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"{name}-of-joined",
            "x y @axis @axes",
            lambda x, y, axis, axes, f=f: f(cat(x, y, axis), axes),
            lambda x, y, axis, axes, f=f, name=name: apply(_joiner(name), f(x, axes), f(y, axes)),
            "reals",
            f"The {name} of joined values comes from the {name} of each.",
            where=lambda x, y, axis, axes: axis in axes,
        )
        for name, f in REDUCTIONS.items()
        if _joiner(name)
    ),
)


RULES = (*SLICE, *WHOLE, *CAT)
