"""Words of the rules about convolutions: spatial axes, channels, weights in groups.

An image is x[N,C,...], its last axes being spatial: as many as a convolution has strides. A kernel
is w[O,D,...], of a transposed convolution w[C,D,...], where D counts the channels or the features
of one group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refold.ir import Dim, numel
from refold.ir.shapes import RANK, pad
from refold.rules.term import AXES, Term, concatenated, constant, mean, permute, reshape, slice, sum

Over = Callable[..., Term]  # sum or mean
OVER = (("sum", sum), ("mean", mean))

CONV = "x[N,C,...] w[O,D,...]{} b[1,1,1,1,O?]{} {} @strides @paddings @dilations @groups"
TRANSPOSED = (
    "x[N,C,...] w[C,D,...]{} b[1,1,1,1,F?]{} {} @strides @paddings @dilations @groups"
    " @output_padding"
)


def spatial_axes(strides: Any) -> tuple[int, ...]:
    """The axes along which a kernel moves."""
    return AXES[-len(strides) :]


def channels(strides: Any) -> int:
    """The axis before the spatial ones: of channels, or of features."""
    return -len(strides) - 1


def is_zero(b: Term) -> bool:
    return b.node.op == "scalar" and b.node["value"] == 0


def swapped(a: int, b: int) -> tuple[int, ...]:
    """The order in which two axes have changed places."""
    order = list(range(RANK))
    order[a], order[b] = order[b], order[a]
    return tuple(order)


def as_bias(s: Term, strides: Any) -> Term:
    """s[1,O,1...] -> [O]."""
    return permute(s, swapped(channels(strides), -1))


def in_groups(w: Term, strides: Any, groups: int) -> Term:
    """w[O,D,...] as [groups, O/groups, D, elements of the kernel]."""
    first, second, *kernel = w.shape[channels(strides) - 1 :]
    assert isinstance(first, int)
    return reshape(w, pad((groups, first // groups, second, numel(kernel))))


def of_groups(s: Term, strides: Any, groups: int) -> Term:
    """Values of channels s[1,C,1...] as [groups, 1, C/groups, 1]; of one element, as it is."""
    size = s.shape[channels(strides)]
    assert isinstance(size, int)
    return s if size == 1 else reshape(s, pad((groups, 1, size // groups, 1)))


def meets(x: Term, w: Term, strides: Any, paddings: Any, dilations: Any) -> bool:
    """Does every place of the result meet some of the image, so that a factor NaN is seen in it?

    Of elements that lie apart one may fall before the image and the next one behind it.
    """
    for a, padding, dilation in zip(spatial_axes(strides), paddings, dilations, strict=True):
        size = x.shape[a]
        least = size if isinstance(size, int) else 2
        if padding and (padding > dilation * (w.shape[a] - 1) or least < dilation):
            return False
    return True


def window_sums_along(x: Term, axis: int, left_out: list[tuple[int, int]]) -> Term:
    """Along `axis`, for each element of the kernel the sum of all but so many at either end.

    That is the sum of all, less the sums of the ends. Where the ends are known to be more than half
    of the axis, their sums would cancel most of it, and the rest is summed by itself.
    """
    total, size = sum(x, (axis,)), x.shape[axis]
    parts = []
    for before, after in left_out:
        left = total
        if isinstance(size, int) and 2 * (before + after) > size:
            parts.append(_middle(x, axis, before, size - before - after))
            continue
        if before:
            left = left - sum(slice(x, axis, 0, before), (axis,))
        if after:
            left = left - sum(slice(x, axis, x.shape[axis] - after, after), (axis,))
        parts.append(left)
    return concatenated(parts, axis) if len(parts) > 1 else parts[0]


def _middle(x: Term, axis: int, start: int, length: int) -> Term:
    if length > 0:
        return sum(slice(x, axis, start, length), (axis,))
    return constant(0, x, tuple(1 if a == axis else d for a, d in zip(AXES, x.shape, strict=True)))


def are_there(size: Dim, left_out: list[tuple[int, int]], least: int = 2) -> bool:
    """Are there as many as are left out?

    least: of a size that varies, which is at least 2.
    """
    least = size if isinstance(size, int) else max(2, least)
    return all(most <= least for ends in left_out for most in ends)
