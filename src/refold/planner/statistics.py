"""Means and variances of a convolution's result, by those of each channel of an image.

A kernel of a convolution can take the mean and the variance of each channel of an image before it
stores the values, or instead. What batch, group and layer norms ask for follows from these: the
mean of equal shares is the mean of their means, the variance the mean of their variances plus the
variance of their means.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import torch

from refold.devices import DeviceModel
from refold.families import FAMILIES
from refold.ir import OPS, Dim, Graph, Kind, Node, as_scalar, hint, make, numel
from refold.ir.graph import wide_axes
from refold.ir.node import rebuild
from refold.ir.ops import CONVOLUTIONS
from refold.planner.reshaped import reshaped

_MONOIDS = ("Sum", "Moments")  # of what follows from means and variances
# elements of a row that a kernel of rows holds while it normalises them: it reads them once
_HELD = 48 << 10


@dataclass(frozen=True)
class _Taken:
    """What a reduction is over: a value of a convolution's shape, whose last axes are its places.
    each: of how many channels of an image a result is; 0: of one channel of all images."""

    conv: Node
    value: Node
    each: int

    @property
    def places(self) -> int:
        return len(self.conv["strides"])


def of_channels(
    graph: Graph, device: DeviceModel, refused: Container[Node] = ()
) -> tuple[Graph, Mapping[Node, Node], dict[Node, Node]]:
    """The same function where reductions of what a convolution makes follow from statistics of each
    channel of an image; what became of each node; and these statistics, with the values that they
    are of in the graph that is given.

    refused: values whose reductions are left as they are.
    """
    nodes = graph.nodes()
    convolutions = [n for n in nodes if n.op in CONVOLUTIONS]
    taking = {c for c in convolutions if any(f.takes_statistics(c, device) for f in FAMILIES)}
    found = _found(graph, taking, refused) if taking else {}
    if not found:
        return graph, {n: n for n in nodes}, {}
    done: dict[Node, Node] = {}
    made: dict[Node, Node] = {}
    for n in nodes:
        if n in found:
            taken = found[n]
            value, statistics = _joined(n, done[taken.value], taken)
            made |= dict.fromkeys(statistics, taken.value)
            done[n] = value
        else:
            done[n] = rebuild(n, tuple(done[i] for i in n.inputs))
    joined = graph.with_roots(done[r] for r in graph.roots())
    there = set(joined.nodes())
    return joined, done, {n: value for n, value in made.items() if n in there}


def _found(graph: Graph, taking: set[Node], refused: Container[Node]) -> dict[Node, _Taken]:
    """The reductions that follow so, where that reads less than kernels of rows would."""
    readers: dict[Node, list[Node]] = {}
    for n in graph.nodes():
        for i in n.inputs:
            readers.setdefault(i, []).append(n)
    found = {}
    for n in graph.nodes():
        if not _follows_from_moments(n) or n.dtype != torch.float32:
            continue
        x = n.inputs[0]
        while x.op == "reshape":
            (x,) = x.inputs
        conv = None if x in refused else _convolution_of(x)
        if conv is None or conv not in taking:
            continue
        places = len(conv["strides"])
        each = _channels_each(n, x, places)
        if each is None:
            continue
        alone = all(map(_follows_from_moments, _readers(x, readers))) and x not in graph.roots()
        if each != 1 or alone or hint(numel(x.shape[-places:])) > _HELD:
            found[n] = _Taken(conv, x, each)
    return found


def _follows_from_moments(node: Node) -> bool:
    """Is it a reduction that follows from means and variances?"""
    how = OPS[node.op].reduction
    return OPS[node.op].kind is Kind.REDUCE and how is not None and how.monoid in _MONOIDS


def _convolution_of(value: Node) -> Node | None:
    """The one convolution that a value of its shape follows from element by element."""
    found: dict[Node, None] = {}
    seen, stack = {value}, [value]
    while stack:
        n = stack.pop()
        if n.op in CONVOLUTIONS:
            found.setdefault(n)
        elif OPS[n.op].kind is Kind.POINTWISE:
            new = [i for i in n.inputs if i not in seen and i.shape == value.shape]
            seen.update(new)
            stack += new
    return next(iter(found)) if len(found) == 1 else None


def _readers(value: Node, readers: Mapping[Node, list[Node]]) -> Iterator[Node]:
    """What reads a value, in whatever shape."""
    for r in readers.get(value, ()):
        if r.op == "reshape":
            yield from _readers(r, readers)
        else:
            yield r


def _channels_each(node: Node, x: Node, places: int) -> int | None:
    """`each` of a reduction of x, however that is shaped there; None where it is over others."""
    y, axes = node.inputs[0], wide_axes(node)
    images, channels = x.shape[-places - 2 : -places]
    of_image = {a for a in range(-places, 0) if x.shape[a] != 1}
    if y is x and images != 1 and set(axes) == {-places - 2, *of_image}:
        return 0
    if any(a not in axes and y.shape[a] != 1 for a in range(min(axes, default=0), 0)):
        return None  # not the last axes
    left: list[Dim] = [d for a, d in enumerate(y.shape, -len(y.shape)) if a not in axes and d != 1]
    if images != 1:
        if not left or left[0] != images:
            return None
        del left[0]
    if not isinstance(channels, int) or not all(isinstance(d, int) for d in left):
        return None
    made = prod(map(hint, left))
    return None if channels % made else channels // made


def _joined(node: Node, x: Node, taken: _Taken) -> tuple[Node, list[Node]]:
    """A reduction by the statistics of channels of images, and those that it takes."""
    axes = tuple(range(-taken.places, 0))
    of_channel = make("mean", x, axes=axes), make("var", x, axes=axes, correction=0)
    images, channels = x.shape[-taken.places - 2 : -taken.places]
    count = numel(x.shape[a] for a in axes)
    over = -1
    mean, spread = of_channel
    if taken.each == 0:
        over, count = -taken.places - 2, count * images
    else:
        count = count * taken.each
        shape = (1, 1, images, hint(channels) // taken.each, taken.each)
        mean, spread = reshaped(mean, shape), reshaped(spread, shape)
    if taken.each != 1:  # far from zero a mean's last digit is not small beside the deviations
        first = make("slice", mean, axis=over, start=0, length=1)
        apart = make("sub", mean, first)
        mean = make("add", first, make("mean", apart, axes=(over,)))
        between = make("var", apart, axes=(over,), correction=0)
        spread = make("add", make("mean", spread, axes=(over,)), between)
    if node.op == "mean":
        return reshaped(mean, node.shape), [of_channel[0]]
    whole = as_scalar(count, node.dtype)
    if node.op == "sum":
        return reshaped(make("mul", mean, whole), node.shape), [of_channel[0]]
    if node["correction"] != 0:
        fewer = as_scalar(count - node["correction"], node.dtype)
        spread = make("mul", spread, make("div", whole, fewer))
    return reshaped(spread, node.shape), list(of_channel)
