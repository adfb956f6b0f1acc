"""Means and variances as kernels of rows take them, and where a graph has them.

A mean's rounding is noise beside its values, and all there is of values that are equal: eps
makes a last digit 316 times as large, and a division by nothing makes it infinite. So what a mean
leaves is taken beside the squares, in one pass, and added to the mean.
"""

from __future__ import annotations

import math

import torch

from refold.ir import Node, as_scalar, make
from refold.ir.graph import wide_axes

COMPUTED = (torch.float32, torch.float64)


def by_hand(node: Node) -> Node | None:
    """The variance that a mean or a sum of squares of centred values is, or is a multiple of."""
    if node.op not in ("mean", "sum") or node.dtype not in COMPUTED:
        return None
    (y,) = node.inputs
    if y.op != "square" and not (y.op == "mul" and y.inputs[0] is y.inputs[1]):
        return None
    mean = centring_mean(y.inputs[0])
    if mean is None or not wide_axes(mean) or wide_axes(mean) != wide_axes(node):
        return None
    return make("var", mean.inputs[0], axes=node["axes"], correction=0)


def centring_mean(node: Node) -> Node | None:
    """The mean that comes off what it is taken of, if that is what a value is."""
    if node.op != "sub":
        return None
    x, mean = node.inputs
    return mean if mean.op == "mean" and mean.inputs[0] is x else None


def left_of(mean: Node, left: Node) -> Node:
    """What a mean leaves; of an infinite one it is no number that could be added to it."""
    infinite = make("eq", make("abs", mean), as_scalar(math.inf, left.dtype))
    return make("where", infinite, as_scalar(0.0, left.dtype), left)


def variance_along(node: Node) -> Node:
    """Over one axis, in two passes, the second over centred values: no cancellation. The second
    takes the sum of these values, too: the mean's rounding leaves it, and it comes off the
    squares."""
    (x,), (axis,) = node.inputs, node["axes"]
    centred, left = _left(x, axis)
    squares = make("sum", make("square", centred), axes=(axis,))
    about = make("mul", make("square", left), as_scalar(x.shape[axis], x.dtype))
    largest = as_scalar(torch.finfo(x.dtype).max, x.dtype)  # infinite squares stay infinite
    total = make("sub", squares, make("minimum", about, largest))
    # of equal values nothing remains but what the sums were rounded by
    noise = make("mul", squares, as_scalar(8 * torch.finfo(x.dtype).eps, x.dtype))
    total = make("where", make("lt", total, noise), as_scalar(0.0, x.dtype), total)
    return make("div", total, as_scalar(x.shape[axis] - node["correction"], x.dtype))


def mean_along(node: Node) -> Node:
    """The mean over one axis with what its rounding leaves added: of equal values it is exact."""
    (x,), (axis,) = node.inputs, node["axes"]
    return make("add", make("mean", x, axes=(axis,)), _left(x, axis)[1])


def _left(x: Node, axis: int) -> tuple[Node, Node]:
    """Values less their mean over an axis as it is rounded, and the mean of that."""
    mean = make("mean", x, axes=(axis,))
    centred = make("sub", x, mean)
    return centred, left_of(mean, make("mean", centred, axes=(axis,)))
