"""Statistics of rows that are too long to stay in registers, in one pass over them instead of two.

Plans have a row's largest value, then the sum of exponentials of what lies below it; or its mean,
then the sum of squared deviations. Both follow from parts that merge: a second pass that finds
nothing in registers would read memory again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refold.codegen.body import Reduction
from refold.ir import Node


def one_pass(found: Sequence[Reduction]) -> tuple[Reduction, ...]:
    """The same reductions, two of them taken as one where the second needs only the first."""
    left = list(found)
    for first in found:
        for second in found:
            monoid = _monoid(first, second)
            if monoid is not None and first in left and second in left:
                nodes = (*first.nodes, *second.nodes)
                left[left.index(first)] = replace(
                    first, monoid=monoid, nodes=nodes, second=second.nodes
                )
                left.remove(second)
    return tuple(replace(r, index=i) for i, r in enumerate(left))


def _monoid(first: Reduction, second: Reduction) -> str | None:
    """The monoid that gives both, if there is one."""
    x, y = first.source, second.source
    if second.monoid != "Sum" or y.op == "linear":
        return None
    if first.monoid == "Max" and y.op == "exp" and _is_below(y.inputs[0], x):
        top = y.inputs[0].inputs[1]
        if top in first.nodes:
            return "Softmax"
        return "LogSumExpState" if _finite(top) in first.nodes else None
    means = first.monoid == "Sum" and all(n.op == "mean" for n in first.nodes)
    squared = y.op == "square" or (y.op == "mul" and y.inputs[0] is y.inputs[1])
    if means and squared and _is_below(y.inputs[0], x) and y.inputs[0].inputs[1] in first.nodes:
        return "RowMoments"
    return None


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
