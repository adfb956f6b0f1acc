"""Sums of several values taken apart, where linear maps are among them for the parts to go into;
reductions of rows that were cut into pieces, of the rows as they were; one product for equal rows;
running sums before or after a linear map.

A sum of added values is the sum of their sums. By itself that saves nothing: it pays where one of
the values is a product, which then shrinks to a product with summed weights or with summed rows.
"""

from __future__ import annotations

from refold.ir import Dim, Kind, Node, numel
from refold.rules.rule import Rule
from refold.rules.safety import is_map
from refold.rules.term import (
    AXES,
    JOINING,
    LINEAR,
    Term,
    apply,
    cat,
    count,
    cumsum,
    expand,
    is_unit_along,
    linear,
    mean,
    reshape,
    smaller,
    sum,
)

_DEEP = 12  # ops between a sum and the product that it may reach


def _is_map(x: Term) -> bool:
    """Is a value a linear map of something, shifted and scaled at most, or a sum with one?"""
    return _reaches(x.node, _DEEP)


def _reaches(node: Node, deep: int) -> bool:
    front, seen = {node}, set[Node]()
    for _ in range(deep + 1):
        if any(n.row.is_contraction for n in front):
            return True
        seen |= front
        front = {i for n in front if _scales(n) for i in n.inputs} - seen
    return False


def _scales(node: Node) -> bool:
    return bool(node.row.linear_in) and node.kind in (Kind.POINTWISE, Kind.MOVE)


def _is_whole_row(x: Term, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> bool:
    """Are the last axes of a shape, all of them reduced, what was the last axis of x?"""
    return axes == AXES[-len(axes) :] and numel(shape[a] for a in axes) == x.shape[-1]


APART = (
    *(
        Rule(
            f"{name}-of-{word}",
            "x y @axes",
            lambda x, y, axes, f=f, op=op: f(apply(op, x, y), axes),
            lambda x, y, axes, f=f, op=op: apply(op, f(x, axes), f(y, axes)),
            "reals",
            f"The {name} of {what} is {result}.",
            # a value that is spread is summed as often as it is read; its mean does not change
            where=(lambda x, y, axes: x.shape == y.shape) if name == "sum" else None,
            simplify=lambda x, y, axes: _is_map(x) or _is_map(y),
            mark="cancels",
            safe=lambda x, y, axes: is_map(x) or is_map(y),
        )
        for name, f in LINEAR.items()
        for op, word, what, result in (
            ("add", "added", "added values", f"the {name} of each, added"),
            ("sub", "difference", "a difference", f"the difference of the {name}s"),
        )
    ),
    Rule(
        "weighted-sum-of-shifted",
        "x b! s @axes",
        lambda x, b, s, axes: sum((x + b) * s, axes),
        lambda x, b, s, axes: sum(x * s, axes) + sum(s, axes) * b,
        "reals",
        "A weighted sum of values shifted alike is theirs, and the shift times the sum of weights.",
        where=lambda x, b, s, axes: (
            is_unit_along(b, axes) and all(s.shape[a] == x.shape[a] for a in axes)
        ),
        simplify=lambda x, b, s, axes: smaller(s, x) and _is_map(x),
        mark="cancels",
        safe=lambda x, b, s, axes: is_map(x),
    ),
    Rule(
        "mean-of-joined",
        "x y @axis @axes",
        lambda x, y, axis, axes: mean(cat(x, y, axis), axes),
        lambda x, y, axis, axes: (sum(x, axes) + sum(y, axes)) / count(cat(x, y, axis), axes),
        "reals",
        "The mean of joined values comes from the sum of each.",
        where=lambda x, y, axis, axes: axis in axes,
    ),
)

TOGETHER = tuple(
    Rule(
        f"{name}-of-rows-in-pieces",
        "x @shape @axes",
        lambda x, shape, axes, f=f: f(reshape(x, shape), axes),
        lambda x, shape, axes, f=f: reshape(
            f(x, (-1,)), (*shape[: -len(axes)], *(1 for _ in axes))
        ),
        "reals",
        f"The {name} of all the pieces of a row is that of the row.",
        where=lambda x, shape, axes: _is_whole_row(x, shape, axes),
        simplify=lambda x, shape, axes: len(axes) > 1,
    )
    for name, f in JOINING.items()
)

SPREAD = (
    Rule(
        "linear-of-expanded",
        "x[N,K] w[1,1,1,M,K] @shape",
        lambda x, w, shape: linear(expand(x, shape), w),
        lambda x, w, shape: expand(linear(x, w), (*shape[:-1], w.shape[-2])),
        "reals",
        "What is the same for many rows is multiplied once.",
    ),
)

# what asks for some of the rows, or for their sums, may then ask it of the product's input
ROWS = (
    Rule(
        "reshape-of-linear",
        "x[N,K] w[1,1,1,M,K] @shape",
        lambda x, w, shape: reshape(linear(x, w), shape),
        lambda x, w, shape: linear(reshape(x, (*shape[:-1], x.shape[-1])), w),
        "reals",
        "The rows can be arranged before they are multiplied.",
        where=lambda x, w, shape: shape[-1] == w.shape[-2],
        simplify=False,
    ),
    Rule(
        "reshape-of-shifted-linear",
        "x[N,K] w[1,1,1,M,K] b! @shape",
        lambda x, w, b, shape: reshape(linear(x, w) + b, shape),
        lambda x, w, b, shape: linear(reshape(x, (*shape[:-1], x.shape[-1])), w) + b,
        "reals",
        "The rows can be arranged before they are multiplied.",
        where=lambda x, w, b, shape: (
            shape[-1] == w.shape[-2]
            and is_unit_along(b, AXES[:-1])
            and b.shape[-1] in (1, shape[-1])
        ),
        simplify=False,
    ),
)

RUNNING = (
    Rule(
        "linear-of-cumsum",
        "x[N,K] w[M,K] @axis",
        lambda x, w, axis: linear(cumsum(x, axis), w),
        lambda x, w, axis: cumsum(linear(x, w), axis),
        "reals",
        "Running sums over a batch can be taken after the product, of fewer features.",
        where=lambda x, w, axis: axis != -1 and is_unit_along(w, AXES[:-2]),
        simplify=False,
    ),
)

RULES = (*APART, *TOGETHER, *SPREAD, *ROWS, *RUNNING)
