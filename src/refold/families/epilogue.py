"""What kernels of products and of convolutions compute of each element of their result: the
pointwise values that follow, up to the one that others read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from refold.families.view import View
from refold.families.walk import addressable
from refold.ir import Node
from refold.plan.plan import values_read


def epilogue(
    product: Node, view: View, fits: Callable[[Node], bool] = lambda value: True
) -> list[Node]:
    """The product and what follows it up to one value, the only one that others read.

    The region grows over pointwise readers; of the values that are read outside it the first
    stays, and what comes after that belongs to other groups.

    fits: whether the kernel can read a value where it computes an element of the product.
    """
    region: dict[Node, None] = {product: None}
    waiting = sorted(view.place[r] for r in view.read_by(product))
    while waiting:  # in the order of the graph
        n = view.order[heappop(waiting)]
        if n in region or n.shape != product.shape or not view.is_open_pointwise(n):
            continue
        values = values_read(n)
        if not addressable(values, product.shape) or not all(map(fits, values)):
            continue
        if any(view.follows(i, region, product) for i in values if i not in region):
            continue
        region.setdefault(n)
        for r in view.read_by(n):
            heappush(waiting, view.place[r])
    exits = [n for n in region if _read_outside(n, region, view)]
    while len(exits) > 1:  # what is left out may read a value before the exit
        needed = view.since([exits[0]], product)
        region = {n: None for n in region if n in needed}
        exits = [n for n in region if _read_outside(n, region, view)]
    needed = view.since(exits or region, product)
    return [n for n in region if n in needed]


def _read_outside(node: Node, region: Iterable[Node], view: View) -> bool:
    inside = set(region)
    return node in view.roots or any(r not in inside for r in view.read_by(node))
