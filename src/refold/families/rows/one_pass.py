"""Statistics of rows that are taken in one pass instead of two.

The sum of values and that of their squares need each other not at all: one pass takes both.

Of rows that are too long to stay in registers, what needs each other, too. Plans have a row's
largest value, then the sum of exponentials of what lies below it; or its mean, then the sum of
squared deviations. Both follow from parts that merge: a second pass that finds
nothing in registers would read memory again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from refold.codegen.body import Reduction
from refold.ir import Node


def with_squares(found: Sequence[Reduction]) -> tuple[Reduction, ...]:
    """The same reductions, the sums of values and those of their squares as one."""
    return _joined(found, lambda x, y: _with_squares(x, y) or _with_squares(y, x))


def one_pass(found: Sequence[Reduction]) -> tuple[Reduction, ...]:
    """The same reductions, two of them taken as one where the second needs only the first."""
    return _joined(found, waiting)


def _joined(
    found: Sequence[Reduction], both: Callable[[Reduction, Reduction], Reduction | None]
) -> tuple[Reduction, ...]:
    """The same reductions, of two the one that is `both`, if there is one, where the first was."""
    left = list(found)
    for first in found:
        for second in found:
            joined = both(first, second) if first in left and second in left else None
            if joined is not None and first is not second:
                left[left.index(first)] = joined
                left.remove(second)
    return tuple(replace(r, index=i) for i, r in enumerate(left))


def _with_squares(values: Reduction, squares: Reduction) -> Reduction | None:
    sums = values.monoid == squares.monoid == "Sum"
    if not sums or values.source.op == "linear" or _squared(squares.source) is not values.source:
        return None
    nodes = (*values.nodes, *squares.nodes)
    return replace(values, monoid="SumAndSquares", nodes=nodes, second=squares.nodes)


def _squared(node: Node) -> Node | None:
    """What a square is of, if it is one."""
    if node.op == "square" or (node.op == "mul" and node.inputs[0] is node.inputs[1]):
        return node.inputs[0]
    return None


def waiting(first: Reduction, second: Reduction) -> Reduction | None:
    """The reduction that gives both, if there is one. second: it needs the first."""
    x, y = first.source, second.source
    nodes = (*first.nodes, *second.nodes)
    if first.monoid == "Max" and second.monoid == "Sum" and y.op == "exp":
        if not _is_below(y.inputs[0], x):
            return None
        top = y.inputs[0].inputs[1]
        monoid = "Softmax" if top in first.nodes else "LogSumExpState"
        if top not in first.nodes and _finite(top) not in first.nodes:
            return None
        return replace(first, monoid=monoid, nodes=nodes, second=second.nodes)
    means = first.monoid == "Sum" and all(n.op == "mean" for n in first.nodes)
    squares = second.second if second.monoid == "SumAndSquares" else second.nodes
    centred = y if squares is second.second else _squared(y) if second.monoid == "Sum" else None
    if not means or centred is None or not _is_below(centred, x):
        return None
    if centred.inputs[1] not in first.nodes:
        return None
    # means of parts are exact, and merge: they leave nothing
    none = tuple(n for n in second.nodes if n not in squares)
    moments = replace(first, monoid="RowMoments", nodes=nodes, second=squares)
    return replace(moments, ready=first.nodes, none=none)


def _is_below(node: Node, x: Node) -> bool:
    """Is it x less something?"""
    return node.op == "sub" and node.inputs[0] is x


def _finite(node: Node) -> Node | None:
    """What `node` is where that is finite, and else zero (planner/lower.py, _logsumexp)."""
    if node.op != "where" or node.inputs[0].op != "eq":
        return None
    mask, zero, value = node.inputs
    magnitude, infinite = mask.inputs
    zeros = zero.op == "scalar" and zero["value"] == 0.0
    infinities = infinite.op == "scalar" and infinite["value"] == float("inf")
    same = magnitude.op == "abs" and magnitude.inputs[0] is value
    return value if zeros and infinities and same else None
