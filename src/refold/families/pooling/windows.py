"""The windows of a pooling, of whichever op of the table, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Iterable

from refold.ir import Node
from refold.ir.convolution import Window, windows
from refold.ir.ops import POOLS

_ALONG_A_LINE = "avg_pool"


def is_pool(node: Node) -> bool:
    return node.op in (*POOLS, _ALONG_A_LINE)


def pool_of(nodes: Iterable[Node]) -> Node:
    """The pooling of a kernel."""
    return next(filter(is_pool, nodes))


def takes_largest(pool: Node) -> bool:
    return pool.op == "max_pool"


def windows_of(pool: Node) -> tuple[Window, ...]:
    """Axis by axis, the last of them the image's last one; none where sizes vary."""
    if pool.op != _ALONG_A_LINE:
        return windows(pool.inputs[0], dict(pool.attrs))
    length = pool.inputs[0].shape[-1]
    if not isinstance(length, int):
        return ()
    return (Window.over(length, pool["size"], pool["stride"], pool["padding"], 1, False),)


def taps(pool: Node) -> int:
    """Elements of a window."""
    return math.prod(w.size for w in windows_of(pool))


def times_read(pool: Node) -> float:
    """How often an element of the image is read, where windows overlap."""
    return math.prod(max(1.0, w.size / w.step) for w in windows_of(pool))
