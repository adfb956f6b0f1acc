"""What is known of a value without running it: bounds of its elements.

Bounds come from the op table (`low`, `high`, `slope`) and hold for finite inputs; parameters may
be anything. Unknown is the whole line, never a guess.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, MutableMapping
from typing import TypeAlias

import torch

from refold.ir import OPS, Node, hint, numel
from refold.ir.graph import topological
from refold.rules.term import Term

Interval: TypeAlias = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)


_known: MutableMapping[Node, Interval] = weakref.WeakKeyDictionary()


def bounds(node: Node) -> Interval:
    """Bounds of the elements of `node`, as (low, high)."""
    known = _known.get(node)
    if known is not None:
        return known
    for n in topological([node], _known):
        _known[n] = _bounds(n, [_known[i] for i in n.inputs])
    return _known[node]


def at_least(x: Term, c: Term) -> bool:
    """Is every element of `x` known to be at least every element of `c`?"""
    return bounds(x.node)[0] >= bounds(c.node)[1]


def _bounds(node: Node, inner: list[Interval]) -> Interval:
    row = OPS[node.op]
    low, high = _SPECIAL[node.op](node, inner) if node.op in _SPECIAL else ANY
    if row.slope and len(inner) == 1:
        low, high = _monotone(node, inner[0])
    if math.isnan(low) or math.isnan(high):
        low, high = ANY
    return max(low, row.low), min(high, row.high)


def _monotone(node: Node, x: Interval) -> Interval:
    ends = OPS[node.op].run(torch.tensor(x, dtype=torch.float64), **dict(node.attrs)).tolist()
    low, high = sorted(ends) if not any(math.isnan(e) for e in ends) else ANY
    # an end is rounded: one step outwards keeps it a bound, zero and infinity are exact
    return (low if low == 0 else math.nextafter(low, -math.inf)), (
        high if high == 0 else math.nextafter(high, math.inf)
    )


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _mul(node: Node, inner: list[Interval]) -> Interval:
    (a, b), (c, d) = inner
    ends = [_product(x, y) for x in (a, b) for y in (c, d)]
    if node.inputs[0] is node.inputs[1]:
        return 0.0, max(ends)
    return min(ends), max(ends)


def _sum(node: Node, inner: list[Interval]) -> Interval:
    # bounds must hold at every call: only the sign survives a size that varies
    x = node.inputs[0]
    n = numel(x.shape[a] for a in node["axes"])
    low, high = inner[0]
    if isinstance(n, int):
        return _product(low, n), _product(high, n)
    return (0.0 if low >= 0 else -math.inf), (0.0 if high <= 0 else math.inf)


def _same(node: Node, inner: list[Interval]) -> Interval:
    return inner[0]


def _hull(node: Node, inner: list[Interval]) -> Interval:
    return min(a for a, _ in inner), max(b for _, b in inner)


def _pool(node: Node, inner: list[Interval]) -> Interval:
    low, high = inner[0]
    return (min(low, 0.0), max(high, 0.0)) if node["padding"] else (low, high)


def _scalar(node: Node, inner: list[Interval]) -> Interval:
    value = node["value"]
    if isinstance(value, (bool, int, float)):
        return (float(value), float(value)) if not math.isnan(value) else ANY
    # sizes are sums of products of positive numbers, unless a coefficient is negative
    return (1.0, math.inf) if all(c > 0 for _, c in value.terms) and hint(value) else ANY


def _div(node: Node, inner: list[Interval]) -> Interval:
    (a, b), (c, _) = inner
    if c > 0:
        return (0.0 if a >= 0 else a / c), (0.0 if b <= 0 else b / c)
    if c >= 0:
        return (0.0 if a >= 0 else -math.inf), (0.0 if b <= 0 else math.inf)
    return ANY


def _falling(node: Node, inner: list[Interval]) -> Interval:
    """Of what falls where the input is positive, and is infinite or nothing beyond."""
    low, high = inner[0]
    return _monotone(node, (low, high)) if low > 0 else ANY


_SPECIAL: dict[str, Callable[[Node, list[Interval]], Interval]] = {
    "scalar": _scalar,
    "add": lambda n, i: (i[0][0] + i[1][0], i[0][1] + i[1][1]),
    "sub": lambda n, i: (i[0][0] - i[1][1], i[0][1] - i[1][0]),
    "mul": _mul,
    "div": _div,
    "maximum": lambda n, i: (max(i[0][0], i[1][0]), max(i[0][1], i[1][1])),
    "minimum": lambda n, i: (min(i[0][0], i[1][0]), min(i[0][1], i[1][1])),
    "where": lambda n, i: _hull(n, i[1:]),
    "cat": _hull,
    "sum": _sum,
    "softplus": lambda n, i: (0.0 if n["beta"] > 0 else -math.inf, math.inf),
    "avg_pool": _pool,
    "rsqrt": _falling,
    "reciprocal": _falling,
    "cast": lambda n, i: (0.0, 1.0) if n.inputs[0].dtype == torch.bool else ANY,
    **dict.fromkeys(("mean", "max", "min", "image_pool"), _same),
    **dict.fromkeys(("reshape", "permute", "expand", "slice"), _same),
}
