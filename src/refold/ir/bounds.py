"""Bounds of an op's result, from those of its inputs: what rows of the op table name.

Each takes a node and an interval (low, high) for each of its inputs, and gives one for its result.
They hold for finite inputs. Unknown is the whole line, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import torch

from refold.ir.dim import hint, numel

if TYPE_CHECKING:
    from refold.ir.node import Node

Interval: TypeAlias = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)


def unknown(node: Node, inner: Sequence[Interval]) -> Interval:
    return ANY


def within(low: float = -math.inf, high: float = math.inf) -> Callable[..., Interval]:
    """The same bounds whatever the inputs."""

    def bounds(node: Node, inner: Sequence[Interval]) -> Interval:
        return low, high

    return bounds


def monotone(node: Node, inner: Sequence[Interval]) -> Interval:
    """Of an op that is monotone between the bounds of its one input: its values there."""
    ends = node.row.run(torch.tensor(inner[0], dtype=torch.float64), **dict(node.attrs)).tolist()
    if any(math.isnan(e) for e in ends):
        return ANY
    low, high = sorted(ends)
    # an end is rounded: one step outwards keeps it a bound, zero and infinity are exact
    return (
        low if low == 0 else math.nextafter(low, -math.inf),
        high if high == 0 else math.nextafter(high, math.inf),
    )


def falling(low: float = -math.inf) -> Callable[..., Interval]:
    """Of an op that falls where its input is positive, and is infinite or nothing beyond.

    low: a bound in any case.
    """

    def bounds(node: Node, inner: Sequence[Interval]) -> Interval:
        found = monotone(node, inner) if inner[0][0] > 0 else ANY
        return max(low, found[0]), found[1]

    return bounds


def same(node: Node, inner: Sequence[Interval]) -> Interval:
    return inner[0]


def second(node: Node, inner: Sequence[Interval]) -> Interval:
    return inner[1]


def with_zero(node: Node, inner: Sequence[Interval]) -> Interval:
    """Each element is one of the input's, or zero."""
    low, high = inner[0]
    return min(low, 0.0), max(high, 0.0)


def hull(node: Node, inner: Sequence[Interval]) -> Interval:
    """Each element is one of some input."""
    return min(a for a, _ in inner), max(b for _, b in inner)


def choice(node: Node, inner: Sequence[Interval]) -> Interval:
    """Each element is one of the inputs after the first, which chooses."""
    return hull(node, inner[1:])


def add(node: Node, inner: Sequence[Interval]) -> Interval:
    (a, b), (c, d) = inner
    return a + c, b + d


def sub(node: Node, inner: Sequence[Interval]) -> Interval:
    (a, b), (c, d) = inner
    return a - d, b - c


def mul(node: Node, inner: Sequence[Interval]) -> Interval:
    (a, b), (c, d) = inner
    ends = [_product(x, y) for x in (a, b) for y in (c, d)]
    if node.inputs[0] is node.inputs[1]:
        return 0.0, max(ends)
    return min(ends), max(ends)


def div(node: Node, inner: Sequence[Interval]) -> Interval:
    (a, b), (c, _) = inner
    if c > 0:
        return (0.0 if a >= 0 else a / c), (0.0 if b <= 0 else b / c)
    if c >= 0:
        return (0.0 if a >= 0 else -math.inf), (0.0 if b <= 0 else math.inf)
    return ANY


def maximum(node: Node, inner: Sequence[Interval]) -> Interval:
    return max(a for a, _ in inner), max(b for _, b in inner)


def minimum(node: Node, inner: Sequence[Interval]) -> Interval:
    return min(a for a, _ in inner), min(b for _, b in inner)


def total(node: Node, inner: Sequence[Interval]) -> Interval:
    # bounds must hold at every call: only the sign survives a size that varies
    x = node.inputs[0]
    n = numel(x.shape[a] for a in node["axes"])
    low, high = inner[0]
    if isinstance(n, int):
        return _product(low, n), _product(high, n)
    return (0.0 if low >= 0 else -math.inf), (0.0 if high <= 0 else math.inf)


def pool(node: Node, inner: Sequence[Interval]) -> Interval:
    low, high = inner[0]
    padded = node.get("padding", node.get("paddings"))
    return (min(low, 0.0), max(high, 0.0)) if padded else (low, high)


def scalar(node: Node, inner: Sequence[Interval]) -> Interval:
    value = node["value"]
    if isinstance(value, (bool, int, float)):
        return (float(value), float(value)) if not math.isnan(value) else ANY
    # sizes are sums of products of positive numbers, unless a coefficient is negative
    return (1.0, math.inf) if all(c > 0 for _, c in value.terms) and hint(value) else ANY


def softplus(node: Node, inner: Sequence[Interval]) -> Interval:
    if node["beta"] <= 0:
        return ANY
    return min(0.0, node["threshold"] / node["beta"]), math.inf  # beyond the threshold it is x


def cast(node: Node, inner: Sequence[Interval]) -> Interval:
    return (0.0, 1.0) if node.inputs[0].dtype == torch.bool else ANY


def _product(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b
