"""Moving elements: what moves passes what it does not touch, and two moves are one."""

from __future__ import annotations

from collections.abc import Callable

from refold.ir import Dim
from refold.rules import broadcasts, slice_cat
from refold.rules.broadcasts import BINARY, UNARY, exact_of
from refold.rules.rule import Rule
from refold.rules.term import (
    AXES,
    REDUCTIONS,
    Term,
    apply,
    avg_pool,
    held,
    is_unit_along,
    linear,
    mean,
    permute,
    reshape,
    run_of,
    softmax,
    sum,
)


def _kept(x: Term, shape: tuple[Dim, ...]) -> bool:
    """Does the reshape leave the last axis alone?"""
    return x.shape[-1] == shape[-1]


def _in(s: Term, shape: tuple[Dim, ...]) -> bool:
    return s.shape[-1] in (1, shape[-1])


def _before(order: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of the unpermuted value that a permutation puts at `axes`."""
    return tuple(sorted(order[a] - len(order) for a in axes))


def _merged(x: Term, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of `x` that a reshape to `shape` makes `axes`, of more than one element."""
    runs = [run_of(x.shape, shape, a) for a in axes if shape[a] != 1]
    return None if None in runs or not runs else tuple(a for r in runs for a in r or ())


def _reduced_before(
    f: Callable[..., Term], x: Term, shape: tuple[Dim, ...], axes: tuple[int, ...]
) -> Term:
    runs = _merged(x, shape, axes)
    if runs is None:
        raise ValueError("the reshape cuts an axis that is reduced")
    made = tuple(1 if a in axes else d for a, d in zip(AXES, shape, strict=True))
    return reshape(f(x, runs), made)


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
        for name, f in REDUCTIONS.items()
    ),
    *(
        Rule(
            f"{name}-of-merged-axes",
            "x @shape @axes",
            lambda x, shape, axes, f=f: f(reshape(x, shape), axes),
            lambda x, shape, axes, f=f: _reduced_before(f, x, shape, axes),
            "reals",
            "A reduction along axes that were made one is one along each of them.",
            where=lambda x, shape, axes: (
                _merged(x, shape, axes) is not None and not (_kept(x, shape) and axes == (-1,))
            ),
            simplify=False,
        )
        for name, f in (("sum", sum), ("mean", mean))
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
            f"x @shape{held(op)}",
            lambda x, shape, op=op, **attrs: apply(op, reshape(x, shape), **attrs),
            lambda x, shape, op=op, **attrs: reshape(apply(op, x, **attrs), shape),
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
                is_unit_along(s, AXES[:-1])
                and (s.shape[-1] == 1 or _kept(x, shape))
                and _in(s, shape)
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
            f"x @order{held(op)}",
            lambda x, order, op=op, **attrs: apply(op, permute(x, order), **attrs),
            lambda x, order, op=op, **attrs: permute(apply(op, x, **attrs), order),
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
        for name, f in REDUCTIONS.items()
    ),
)

RULES = (*RESHAPE, *PERMUTE, *broadcasts.RULES, *slice_cat.RULES)
