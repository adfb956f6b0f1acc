"""Where a marked rule is safe in float32: facts about values that conditions `safe` ask for.

All of them hold for every value of the inputs and of the parameters, so that they stay true when
the parameters change.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, MutableMapping

from refold.ir import Node, Sym
from refold.ir.facts import bounds
from refold.ir.graph import is_parametric, topological
from refold.rules.term import Term

LARGEST = 2.0**20  # factors between this and its reciprocal keep values in the range of float32
_EXPONENT = 80.0  # exp of more overflows float32; the sum of exp of less than minus this is lost

_maps: MutableMapping[Node, bool] = weakref.WeakKeyDictionary()
_masked: MutableMapping[Node, bool] = weakref.WeakKeyDictionary()
_parameters: MutableMapping[Node, bool] = weakref.WeakKeyDictionary()


def is_map(x: Term) -> bool:
    """Is a value a product (a linear map or a convolution), shifted, scaled or summed at most?

    A product has rounding errors in proportion to its own size. What is added to it and nearly
    cancels it leaves these errors, whether it is added before or after the next operation. An input
    has no such errors: where a shift nearly cancels it, the difference is exact, and only the
    difference may go on.
    """
    return _known(x.node, _maps, _is_map)


def _is_map(node: Node, inner: list[bool]) -> bool:
    if node.row.is_contraction:
        return True
    # what is linear in a product keeps its errors; jointly with others, where these have some too
    groups = (group or range(len(inner)) for group in node.row.linear_in)
    return any(
        any(inner[i] for i in group)
        and all(inner[i] or is_parametric(node.inputs[i], _parameters) for i in group)
        for group in groups
    )


def may_be_masked(x: Term) -> bool:
    """May elements be -inf because a mask is in the input, or is written in the model?

    Parameters are taken to be finite, and a product to be of finite values: a mask goes into
    nothing but a softmax, a maximum or exponentials.
    """
    return _known(x.node, _masked, _is_masked)


def _is_masked(node: Node, inner: list[bool]) -> bool:
    low, high = bounds(node)
    if math.isfinite(low) and (math.isfinite(high) or node.op not in ("input", "state")):
        return False
    if node.op in ("input", "state", "aten"):
        return True
    if node.op == "scalar":
        return not isinstance(node["value"], Sym) and math.isinf(node["value"])
    return node.row.passes_infinity and any(inner)


def _known(
    node: Node, memo: MutableMapping[Node, bool], of: Callable[[Node, list[bool]], bool]
) -> bool:
    if node not in memo:
        for n in topological([node], memo):
            memo[n] = of(n, [memo[i] for i in n.inputs])
    return memo[node]


def at_least(x: Term, c: Term) -> bool:
    """Is every element of `x` known to be at least every element of `c`?"""
    return bounds(x.node)[0] >= bounds(c.node)[1]


def is_nonzero(s: Term) -> bool:
    low, high = bounds(s.node)
    return low > 0 or high < 0


def is_tame(s: Term) -> bool:
    """Is every element known to have a magnitude between 2**-20 and 2**20, or is it a size?"""
    node = s.node
    if node.op == "scalar" and isinstance(node["value"], Sym):
        return is_nonzero(s)
    low, high = bounds(node)
    return max(low, -high) >= 1 / LARGEST and max(abs(low), abs(high)) <= LARGEST


def is_not_large(s: Term) -> bool:
    """Is every element known to have a magnitude of at most 2**20?"""
    low, high = bounds(s.node)
    return max(abs(low), abs(high)) <= LARGEST


def is_ordinary(s: Term) -> bool:
    """May a factor meet any other first? A parameter may, and what is not large."""
    return is_parameter(s) or is_not_large(s)


def is_parameter(x: Term) -> bool:
    return is_parametric(x.node, _parameters)


def may_be_ordered(x: Term, w: Term, v: Term) -> bool:
    """May a product of three be taken in another order, though large values may then meet each
    other before they meet small ones?

    Two of them are parameters, which are ordinary numbers; or all are products of the same inputs,
    and of one size.
    """
    if [is_parameter(t) for t in (x, w, v)].count(True) >= 2:
        return True
    return is_map(x) and is_map(w) and is_map(v) and _inputs(x) == _inputs(w) == _inputs(v)


def _inputs(x: Term) -> set[Node]:
    return {n for n in topological([x.node]) if n.op in ("input", "state")}


def is_lowered_by_max(x: Term, axes: tuple[int, ...]) -> bool:
    """Is `x` some value less its own maximum over `axes`, so that the largest element is zero?"""
    node = x.node
    if node.op != "sub":
        return False
    value, top = node.inputs
    return top.op == "max" and top.inputs[0] is value and top["axes"] == axes


def has_exponentials(x: Term) -> bool:
    """Do the exponentials of all elements fit float32?"""
    low, high = bounds(x.node)
    return low >= -_EXPONENT and high <= _EXPONENT
