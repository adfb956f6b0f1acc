"""What kernels of pooling compute: windows of images whose sizes are fixed, what is pointwise in
front of them, element by element as it is read, and what is pointwise behind them."""

from __future__ import annotations

from refold.families.family import Claim
from refold.families.pooling.windows import is_pool, pool_of, times_read, windows_of
from refold.families.view import View
from refold.families.walk import addressable, is_pointwise
from refold.ir import OPS, Kind, Node
from refold.plan.draft import Draft
from refold.plan.layout import turned_back, turned_forth
from refold.plan.plan import is_rematerialized, values_read

# Arithmetic, in multiply-adds, that an element may take once more for each window that reads it on
# a GPU: as much as that does while it writes and reads the element. A CPU keeps what is computed.
AGAIN = 64


def claim(node: Node, view: View) -> Claim | None:
    """A pooling of images whose channels do not lie last."""
    if not is_pool(node) or not windows_of(node):
        return None
    if turned_back(node.inputs[0]) is not None or any(map(turned_forth, view.read_by(node))):
        return None
    return Claim(Draft("pooling", node.inputs[0].shape), (node,), "pooling")


def grow(draft: Draft, node: Node, view: View) -> str | None:
    """What is pointwise in the pooled image's elements."""
    shape = pool_of(draft.nodes).shape
    if not is_pointwise(node) or node.shape != shape:
        return None
    return "pooling" if addressable(values_read(node), shape) else None


def made_in_passing(draft: Draft, view: View) -> list[Node]:
    """What is pooled, if it is cheap enough to be computed by each window that reads it."""
    pool = pool_of(draft.nodes)
    (x,) = pool.inputs
    again = times_read(pool) - 1 if view.device.device.toolchain == "cuda" else 0.0
    return [x] if again * _flops(x) <= AGAIN else []


def _flops(x: Node) -> float:
    """Of an element of a pointwise value, from those of its inputs that are none."""
    found, seen, stack = 0.0, set[Node](), [x]
    while stack:
        n = stack.pop()
        if n in seen or OPS[n.op].kind is not Kind.POINTWISE:
            continue
        if n.shape != x.shape and not is_rematerialized(n):
            continue
        seen.add(n)
        found += n.row.flops.plain
        stack += n.inputs
    return found
