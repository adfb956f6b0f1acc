"""What kernels of convolutions reduce over a place's channels, where a tile has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

import torch

from refold.families.epilogue import epilogue
from refold.families.view import View
from refold.families.walk import addressable
from refold.ir import OPS, Kind, Node
from refold.plan.channels import of_places
from refold.plan.layout import turned_forth
from refold.plan.plan import values_read

_ONE_NUMBER = ("Max", "Min", "Sum")  # monoids whose partials are


def reduces_channels(node: Node, conv: Node) -> bool:
    """Is it a reduction over a convolution's channels to one number a place?"""
    how = OPS[node.op].reduction
    if OPS[node.op].kind is not Kind.REDUCE or how is None or how.monoid not in _ONE_NUMBER:
        return False
    return bool(node["axes"] == (_axis(conv),)) and node.dtype == torch.float32


def readable(result: Node, conv: Node) -> Callable[[Node], bool]:
    """Whether a value is whole along the places of a result, or one number; the bias has another
    form."""
    places = len(conv["strides"])
    bias = conv.inputs[2]

    def fits(value: Node) -> bool:
        whole = value.shape[-places:] == result.shape[-places:]
        one = all(d == 1 for d in value.shape[-places:])
        return (whole or one) and (value is not bias or value.op == "scalar")

    return fits


def passes_over_channels(value: Node, conv: Node, view: View, most: int) -> list[Node]:
    """What follows on a convolution's value by passes over the channels of each place, a softmax or
    a logsumexp, say, up to one value that others read; nothing where there is none. most: passes
    that a kernel has room for."""
    places = of_places(conv.shape, _axis(conv))
    fits = readable(conv, conv)
    region: dict[Node, None] = {value: None}
    waiting = sorted(view.place[r] for r in view.read_by(value))

    def joins(n: Node) -> bool:
        if reduces_channels(n, conv):
            return n.inputs[0] in region and n.inputs[0].shape == conv.shape and _is_open(n, view)
        if not view.is_open_pointwise(n) or n.shape not in (conv.shape, places):
            return False
        others = [i for i in values_read(n) if i not in region]
        if n.shape == places:
            return all(all(d == 1 for d in i.shape) for i in others)
        if not addressable(others, conv.shape) or not all(map(fits, others)):
            return False
        return not any(view.follows(i, region, conv) for i in others)

    while waiting:  # in the order of the graph
        n = view.order[heappop(waiting)]
        if n in region or not joins(n):
            continue
        region[n] = None
        for r in view.read_by(n):
            heappush(waiting, view.place[r])
    found = _up_to_one(region, value, view)
    passes = {(OPS[n.op].reduction, n.inputs[0]) for n in found if reduces_channels(n, conv)}
    if not 1 <= len(passes) <= most:
        return []
    found.sort(key=view.place.__getitem__)
    last = found[-1]
    if view.memory(last) != torch.float32 or any(map(turned_forth, view.read_by(last))):
        return []
    if last.shape != places:
        return found[1:]
    return found[1:-1] + epilogue(last, view, readable(last, conv))


def _is_open(node: Node, view: View) -> bool:
    return node not in view.owner and not view.parametric[node]


def _up_to_one(region: Iterable[Node], value: Node, view: View) -> list[Node]:
    """What the first of the values that others read needs of a region."""
    inside = dict.fromkeys(region)
    while True:
        exits = [
            n for n in inside if n in view.roots or any(r not in inside for r in view.read_by(n))
        ]
        needed = view.since(exits[:1], value)
        if len(exits) <= 1:
            return [n for n in inside if n in needed]
        inside = {n: None for n in inside if n in needed}


def _axis(conv: Node) -> int:
    return -len(conv["strides"]) - 1
