"""Moving elements: what moves passes what it does not touch, and two moves are one."""

from __future__ import annotations

from refold.ir import Dim
from refold.rules import spread
from refold.rules.rule import Rule
from refold.rules.spread import BINARY, UNARY, exact_of
from refold.rules.term import (
    AXES,
    Term,
    apply,
    avg_pool,
    cut,
    flat,
    join,
    linear,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    permute,
    reshape,
    softmax,
    sum,
    var,
)


def _kept(x: Term, shape: tuple[Dim, ...]) -> bool:
    """Does the reshape leave the last axis alone?"""
    return x.shape[-1] == shape[-1]


def _in(s: Term, shape: tuple[Dim, ...]) -> bool:
    return s.shape[-1] in (1, shape[-1])


def _before(order: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of the unpermuted value that a permutation puts at `axes`."""
    return tuple(sorted(order[a] - len(order) for a in axes))


_REDUCE = {"sum": sum, "mean": mean, "max": max, "min": min}

RESHAPE = (
    Rule(
        "reshape-to-itself",
        "x @shape",
        lambda x, shape: reshape(x, shape),
        lambda x, shape: x,
        "bits",
        "The shape is already this one.",
        where=lambda x, shape: x.shape == shape,
    ),
    Rule(
        "reshape-of-reshape",
        "x @shape1 @shape2",
        lambda x, shape1, shape2: reshape(reshape(x, shape1), shape2),
        lambda x, shape1, shape2: reshape(x, shape2),
        "bits",
        "Only the last of two reshapes counts.",
    ),
    Rule(
        "pool-of-reshaped",
        "x @shape @size @stride @padding @count_include_pad",
        lambda x, shape, size, stride, padding, count_include_pad: avg_pool(
            reshape(x, shape), size, stride, padding, count_include_pad
        ),
        lambda x, shape, size, stride, padding, count_include_pad: (
            lambda y: reshape(y, (*shape[:-1], y.shape[-1]))
        )(avg_pool(x, size, stride, padding, count_include_pad)),
        "bits",
        "Pooling along the last axis does not see how the others are arranged.",
        where=lambda x, shape, size, stride, padding, count_include_pad: _kept(x, shape),
    ),
    *(
        Rule(
            f"{name}-of-reshaped",
            "x @shape @axes",
            lambda x, shape, axes, f=f: f(reshape(x, shape), axes),
            lambda x, shape, axes, f=f: reshape(f(x, axes), (*shape[:-1], 1)),
            "bits",
            "A reduction along the last axis does not see how the others are arranged.",
            where=lambda x, shape, axes: _kept(x, shape) and axes == (-1,),
        )
        for name, f in _REDUCE.items()
    ),
    Rule(
        "softmax-of-reshaped",
        "x @shape @axis",
        lambda x, shape, axis: softmax(reshape(x, shape), axis),
        lambda x, shape, axis: reshape(softmax(x, axis), shape),
        "bits",
        "A softmax along the last axis does not see how the others are arranged.",
        where=lambda x, shape, axis: _kept(x, shape) and axis == -1,
    ),
    Rule(
        "linear-of-reshaped",
        "x w[1,1,1,M,K] @shape",
        lambda x, w, shape: linear(reshape(x, shape), w),
        lambda x, w, shape: reshape(linear(x, w), (*shape[:-1], w.shape[-2])),
        "reals",
        "A linear map of each row does not see how the rows are arranged.",
        where=lambda x, w, shape: _kept(x, shape),
    ),
    *(
        Rule(
            f"{op}-of-reshaped",
            "x @shape",
            lambda x, shape, op=op: apply(op, reshape(x, shape)),
            lambda x, shape, op=op: reshape(apply(op, x), shape),
            exact_of(op),
            "A function of each element does not see how the elements are arranged.",
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"{op}-of-reshaped-features",
            "x s @shape",
            lambda x, s, shape, op=op: apply(op, reshape(x, shape), s),
            lambda x, s, shape, op=op: reshape(apply(op, x, s), shape),
            exact_of(op),
            "Arithmetic with one value for each feature does not see how the rows are arranged.",
            where=lambda x, s, shape: (
                flat(s, AXES[:-1]) and (s.shape[-1] == 1 or _kept(x, shape)) and _in(s, shape)
            ),
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"{op}-of-two-reshaped",
            "x y @shape",
            lambda x, y, shape, op=op: apply(op, reshape(x, shape), reshape(y, shape)),
            lambda x, y, shape, op=op: reshape(apply(op, x, y), shape),
            exact_of(op),
            "Arithmetic on each element does not see how the elements are arranged.",
            where=lambda x, y, shape: x.shape == y.shape,
        )
        for op in BINARY
    ),
)

PERMUTE = (
    Rule(
        "permute-to-itself",
        "x @order",
        lambda x, order: permute(x, order),
        lambda x, order: x,
        "bits",
        "The axes are already in this order.",
        where=lambda x, order: order == tuple(range(len(order))),
    ),
    Rule(
        "permute-of-permute",
        "x @order1 @order2",
        lambda x, order1, order2: permute(permute(x, order1), order2),
        lambda x, order1, order2: permute(x, tuple(order1[i] for i in order2)),
        "bits",
        "Two permutations after each other are one.",
    ),
    *(
        Rule(
            f"{op}-of-permuted",
            "x @order",
            lambda x, order, op=op: apply(op, permute(x, order)),
            lambda x, order, op=op: permute(apply(op, x), order),
            exact_of(op),
            "A function of each element does not see how the axes are ordered.",
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"{op}-of-permuted-and-number",
            "x s[1,1,1,1,1] @order",
            lambda x, s, order, op=op: apply(op, permute(x, order), s),
            lambda x, s, order, op=op: permute(apply(op, x, s), order),
            exact_of(op),
            "Arithmetic with one number does not see how the axes are ordered.",
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"{name}-of-permuted",
            "x @order @axes",
            lambda x, order, axes, f=f: f(permute(x, order), axes),
            lambda x, order, axes, f=f: permute(f(x, _before(order, axes)), order),
            "reals",
            "A reduction can be taken before the axes change places.",
        )
        for name, f in _REDUCE.items()
    ),
)

SLICE = (
    Rule(
        "slice-of-everything",
        "x @axis @start @length",
        lambda x, axis, start, length: cut(x, axis, start, length),
        lambda x, axis, start, length: x,
        "bits",
        "The slice keeps every element.",
        where=lambda x, axis, start, length: x.shape[axis] == length,
    ),
    Rule(
        "slice-of-slice",
        "x @axis @start1 @length1 @start2 @length2",
        lambda x, axis, start1, length1, start2, length2: cut(
            cut(x, axis, start1, length1), axis, start2, length2
        ),
        lambda x, axis, start1, length1, start2, length2: cut(x, axis, start1 + start2, length2),
        "bits",
        "A slice of a slice is one slice.",
    ),
    Rule(
        "slice-of-first",
        "x y @axis @start @length",
        lambda x, y, axis, start, length: cut(join(x, y, axis), axis, start, length),
        lambda x, y, axis, start, length: cut(x, axis, start, length),
        "bits",
        "The slice lies in the first of the joined values.",
        where=lambda x, y, axis, start, length: (
            isinstance(x.shape[axis], int) and start + length <= x.shape[axis]
        ),
    ),
    Rule(
        "slice-of-second",
        "x y @axis @start @length",
        lambda x, y, axis, start, length: cut(join(x, y, axis), axis, start, length),
        lambda x, y, axis, start, length: cut(y, axis, start - x.shape[axis], length),
        "bits",
        "The slice lies in the second of the joined values.",
        where=lambda x, y, axis, start, length: (
            isinstance(x.shape[axis], int) and start >= x.shape[axis]
        ),
    ),
    *(
        Rule(
            f"slice-of-{op}",
            "x @axis @start @length",
            lambda x, axis, start, length, op=op: cut(apply(op, x), axis, start, length),
            lambda x, axis, start, length, op=op: apply(op, cut(x, axis, start, length)),
            exact_of(op),
            "Only the elements that are kept need to be computed.",
        )
        for op in UNARY
    ),
    *(
        Rule(
            f"slice-of-{op}-with-even",
            "x s @axis @start @length",
            lambda x, s, axis, start, length, op=op: cut(apply(op, x, s), axis, start, length),
            lambda x, s, axis, start, length, op=op: apply(op, cut(x, axis, start, length), s),
            exact_of(op),
            "Only the elements that are kept need to be computed.",
            where=lambda x, s, axis, start, length: flat(s, (axis,)) and x.shape[axis] != 1,
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"slice-of-{op}",
            "x y @axis @start @length",
            lambda x, y, axis, start, length, op=op: cut(apply(op, x, y), axis, start, length),
            lambda x, y, axis, start, length, op=op: apply(
                op, cut(x, axis, start, length), cut(y, axis, start, length)
            ),
            exact_of(op),
            "Only the elements that are kept need to be computed.",
            where=lambda x, y, axis, start, length: x.shape[axis] == y.shape[axis],
        )
        for op in BINARY
    ),
    *(
        Rule(
            f"slice-of-{name}",
            "x @axes @axis @start @length",
            lambda x, axes, axis, start, length, f=f: cut(f(x, axes), axis, start, length),
            lambda x, axes, axis, start, length, f=f: f(cut(x, axis, start, length), axes),
            "reals",
            "Only the rows that are kept need to be reduced.",
            where=lambda x, axes, axis, start, length: axis not in axes,
        )
        for name, f in {**_REDUCE, "logsumexp": logsumexp}.items()
    ),
    Rule(
        "slice-of-var",
        "x @axes @correction @axis @start @length",
        lambda x, axes, correction, axis, start, length: cut(
            var(x, axes, correction=correction), axis, start, length
        ),
        lambda x, axes, correction, axis, start, length: var(
            cut(x, axis, start, length), axes, correction=correction
        ),
        "reals",
        "Only the rows that are kept need to be reduced.",
        where=lambda x, axes, correction, axis, start, length: axis not in axes,
    ),
    *(
        Rule(
            f"slice-of-{name}",
            "x @axis1 @axis2 @start @length",
            lambda x, axis1, axis2, start, length, f=f: cut(f(x, axis1), axis2, start, length),
            lambda x, axis1, axis2, start, length, f=f: f(cut(x, axis2, start, length), axis1),
            "reals",
            "Only the rows that are kept need to be normalised.",
            where=lambda x, axis1, axis2, start, length: axis1 != axis2,
        )
        for name, f in (("softmax", softmax), ("log_softmax", log_softmax))
    ),
    Rule(
        "slice-of-permuted",
        "x @order @axis @start @length",
        lambda x, order, axis, start, length: cut(permute(x, order), axis, start, length),
        lambda x, order, axis, start, length: permute(
            cut(x, order[axis] - len(order), start, length), order
        ),
        "bits",
        "Only the elements that are kept need to be moved.",
    ),
)

CAT = (
    Rule(
        "joined-features",
        "x[N,K] w[1,1,1,M,K]! v[1,1,1,P,K]! @axis",
        lambda x, w, v, axis: join(linear(x, w), linear(x, v), axis),
        lambda x, w, v, axis: linear(x, join(w, v, -2)),
        "reals",
        "Two linear maps of one input side by side are one map with both weights.",
        where=lambda x, w, v, axis: axis == -1,
    ),
    Rule(
        "joined-inputs",
        "x y w[1,1,1,M,K]!",
        lambda x, y, w: linear(join(x, y, -1), w),
        lambda x, y, w: (
            linear(x, cut(w, -1, 0, x.shape[-1])) + linear(y, cut(w, -1, x.shape[-1], y.shape[-1]))
        ),
        "reals",
        "A linear map of joined inputs is the sum of a map of each.",
        simplify=False,
    ),
    Rule(
        "joined-rows",
        "x y w @axis",
        lambda x, y, w, axis: join(linear(x, w), linear(y, w), axis),
        lambda x, y, w, axis: linear(join(x, y, axis), w),
        "reals",
        "One linear map of two batches is the map of the joined batch.",
        where=lambda x, y, w, axis: axis != -1 and flat(w, AXES[:-2]),
        simplify=False,
    ),
    *(
        Rule(
            f"{name}-of-joined",
            "x y @axis @axes",
            lambda x, y, axis, axes, f=f: f(join(x, y, axis), axes),
            lambda x, y, axis, axes, f=f, g=g: apply(g, f(x, axes), f(y, axes)),
            "reals",
            f"The {name} of joined values comes from the {name} of each.",
            where=lambda x, y, axis, axes: axis in axes,
        )
        for name, f, g in (("sum", sum, "add"), ("max", max, "maximum"), ("min", min, "minimum"))
    ),
)


RULES = (*RESHAPE, *PERMUTE, *spread.RULES, *SLICE, *CAT)
