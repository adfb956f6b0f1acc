"""What is known of a value without running it: bounds of its elements.

Bounds come from the rows of the op table and hold for finite inputs; parameters may be anything.
Unknown is the whole line, never a guess.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import MutableMapping

from refold.ir.bounds import ANY, Interval, monotone
from refold.ir.graph import topological
from refold.ir.node import Node

_known: MutableMapping[Node, Interval] = weakref.WeakKeyDictionary()


def bounds(node: Node) -> Interval:
    """Bounds of the elements of `node`, as (low, high)."""
    known = _known.get(node)
    if known is not None:
        return known
    for n in topological([node], _known):
        _known[n] = _bounds(n, [_known[i] for i in n.inputs])
    return _known[node]


def _bounds(node: Node, inner: list[Interval]) -> Interval:
    low, high = node.row.bounds(node, inner)
    if math.isnan(low) or math.isnan(high):
        low, high = ANY
    if len(inner) == 1 and node.row.monotone(dict(node.attrs)):
        least, most = monotone(node, inner)
        low, high = max(low, least), min(high, most)
    return low, high
