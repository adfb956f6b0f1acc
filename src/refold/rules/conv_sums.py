"""Sums over all places of a convolution need no convolution.

`conv(x, w, b)` is linear in x and in w. A sum over all places of the result meets every element of
the kernel with a sum over a part of x; so it is one product of small sums, whatever the size of the
image. With a stride of one the part is a window: all of the image but a few rows at its ends. Other
strides meet every second or third element: a product with zeros and ones adds them up. What an
element of a transposed convolution's kernel meets is a window whatever the stride.
"""

from __future__ import annotations

import math
from typing import Any

from refold.ir import Dim, numel
from refold.ir.shapes import RANK, pad
from refold.rules.image import (
    CONV,
    OVER,
    TRANSPOSED,
    Over,
    are_there,
    channels,
    in_groups,
    is_zero,
    spatial_axes,
    swapped,
    window_sums_along,
)
from refold.rules.rule import Rule
from refold.rules.term import (
    Term,
    constant,
    conv,
    conv_transpose,
    diagonal,
    linear,
    permute,
    reshape,
    sum,
)

Ends = list[tuple[int, int]]  # for each element along an axis of a kernel, what it does not meet


def _ends(kernel: Dim, padding: int, dilation: int) -> Ends:
    """How much of the image an element does not meet at either end, with a stride of one."""
    assert isinstance(kernel, int)
    beyond = [max(0, dilation * i - padding) for i in range(kernel)]
    return list(zip(beyond, beyond[::-1], strict=True))


def _transposed_ends(kernel: Dim, stride: int, padding: int, dilation: int, extra: int) -> Ends:
    """How much of the image is spread beyond either end of the result by an element."""
    assert isinstance(kernel, int)
    reach = [dilation * i for i in range(kernel)]
    return [
        (
            max(0, math.ceil((padding - a) / stride)),
            max(0, math.ceil((padding - extra - b) / stride)),
        )
        for a, b in zip(reach, reach[::-1], strict=True)
    ]


def covers_ends(x: Term, w: Term, strides: Any, paddings: Any, dilations: Any, along: Any) -> bool:
    """Are there, along these axes, as many elements as the ends leave out?"""
    for a, stride, padding, dilation in zip(
        spatial_axes(strides), strides, paddings, dilations, strict=True
    ):
        if a not in along:
            continue
        kernel = w.shape[a]
        assert isinstance(kernel, int)
        # the kernel finds room in the padded image, or there would be no convolution
        least = dilation * (kernel - 1) + 1 - 2 * padding
        if stride == 1 and not are_there(x.shape[a], _ends(kernel, padding, dilation), least):
            return False
    return True


def _all_transposed_ends(w: Term, strides: Any, *numbers: Any) -> list[Ends]:
    return [
        _transposed_ends(w.shape[a], *each)
        for a, *each in zip(spatial_axes(strides), strides, *numbers, strict=True)
    ]


def covers_ends_transposed(
    x: Term,
    w: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    output_padding: Any,
    along: Any,
) -> bool:
    """Are there, along these axes, as many elements as the ends leave out?"""
    ends = _all_transposed_ends(w, strides, paddings, dilations, output_padding)
    return all(
        are_there(x.shape[a], e)
        for a, e in zip(spatial_axes(strides), ends, strict=True)
        if a in along
    )


def _strided(
    x: Term, axis: int, kernel: int, made: Dim, stride: int, padding: int, dilation: int
) -> Term:
    """Along `axis`, for each element of the kernel the sum of what it meets.

    made: how often the kernel is laid on. The ones of the matrix are where a transposed convolution
    of ones puts them, each element of whose kernel is a feature of its own.
    """
    size = x.shape[axis]
    ones = constant(1, x, pad((made,)))
    each = diagonal(constant(1, x, pad((kernel,))))
    assert isinstance(size, int) and isinstance(made, int)
    extra = size - ((made - 1) * stride + dilation * (kernel - 1) + 1 - 2 * padding)
    none = constant(0, x, (1,) * RANK)
    matrix = conv_transpose(ones, each, none, (stride,), (padding,), (dilation,), 1, (extra,))
    order = swapped(axis, -1)
    return linear(x, matrix) if axis == -1 else permute(linear(permute(x, order), matrix), order)


def window_sums(
    x: Term,
    w: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    whole: tuple[Dim, ...],
    along: Any,
) -> Term:
    """For each element of the kernel along these axes, the sum of what it meets: x[N,C,...] ->
    [N,C,kernel], where these are all spatial axes.

    whole: the shape of the result, which tells how often the kernel is laid on.
    """
    numbers = list(zip(spatial_axes(strides), strides, paddings, dilations, strict=True))
    # a product goes first along the last axis, as the image lies in memory
    for axis, stride, padding, dilation in numbers[:: -1 if max(strides) > 1 else 1]:
        if axis not in along:
            continue
        kernel = w.shape[axis]
        assert isinstance(kernel, int)
        if stride == 1:
            x = window_sums_along(x, axis, _ends(kernel, padding, dilation))
        else:
            x = _strided(x, axis, kernel, whole[axis], stride, padding, dilation)
    return x


def transposed_window_sums(
    x: Term,
    w: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    output_padding: Any,
    along: Any,
) -> Term:
    """For each element of a transposed convolution's kernel along these axes, the sum of what
    it spreads."""
    ends = _all_transposed_ends(w, strides, paddings, dilations, output_padding)
    for axis, each in zip(spatial_axes(strides), ends, strict=True):
        if axis in along:
            x = window_sums_along(x, axis, each)
    return x


def _product(window_sums: Term, rows: Term, strides: Any) -> Term:
    """met[N,C,kernel] with weights [groups, features, C/groups * elements] -> [N,1...,features]."""
    n = window_sums.shape[channels(strides) - 1]
    groups, features, depth = rows.shape[-3:]
    ones = (1,) * len(strides)
    if groups == 1:
        row = reshape(window_sums, pad((n, *ones, depth)))
        return linear(row, reshape(rows, pad((features, depth))))
    # each feature reads its own group: what a product of one row would, without its launch
    each = reshape(window_sums, pad((n, groups, 1, depth))) * rows
    return reshape(sum(each, (-1,)), pad((n, *ones, groups * features)))


def _of_places(
    over: Over, axes: Any, product: Term, b: Term, strides: Any, whole: tuple[Dim, ...]
) -> Term:
    """The sum or mean over `axes` of a convolution, from its sums [N,1...,O] without a bias."""
    count = numel(whole[a] for a in spatial_axes(strides))
    each = product if over is sum else product / count
    if not is_zero(b):
        each = each + (b * count if over is sum else b)
    each = permute(each, swapped(channels(strides), -1))
    rest = tuple(a for a in axes if a not in spatial_axes(strides))
    return over(each, rest) if rest else each


def of_convolution(
    over: Over,
    axes: Any,
    x: Term,
    w: Term,
    b: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: int,
) -> Term:
    whole = conv(x, w, b, strides, paddings, dilations, groups).shape
    parts = window_sums(x, w, strides, paddings, dilations, whole, spatial_axes(strides))
    g, features, depth, elements = in_groups(w, strides, groups).shape[-4:]
    rows = reshape(w, pad((g, features, depth * elements)))
    return _of_places(over, axes, _product(parts, rows, strides), b, strides, whole)


def of_transposed_convolution(
    over: Over,
    axes: Any,
    x: Term,
    w: Term,
    b: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: int,
    output_padding: Any,
) -> Term:
    whole = conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding).shape
    ends = _all_transposed_ends(w, strides, paddings, dilations, output_padding)
    if any(before or after for along in ends for before, after in along):
        x = transposed_window_sums(
            x, w, strides, paddings, dilations, output_padding, spatial_axes(strides)
        )
    else:  # all of them meet the whole image
        x, w = sum(x, spatial_axes(strides)), sum(w, spatial_axes(strides))
    # [groups, channels, features, elements] -> [groups, features, channels, elements]
    rows = permute(in_groups(w, strides, groups), swapped(-3, -2))
    g, features, depth, elements = rows.shape[-4:]
    rows = reshape(rows, pad((g, features, depth * elements)))
    return _of_places(over, axes, _product(x, rows, strides), b, strides, whole)


RULES = (
    *(
        Rule(
            f"{name}-of-convolution",
            CONV.format("", "", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: over(
                conv(x, w, b, strides, paddings, dilations, groups), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: of_convolution(
                over, axes, x, w, b, strides, paddings, dilations, groups
            ),
            "reals",
            f"The {name} over all places meets each weight with the sum of a part of the image.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
                axes[-len(strides) :] == spatial_axes(strides)
                and covers_ends(x, w, strides, paddings, dilations, spatial_axes(strides))
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
    *(
        Rule(
            f"{name}-of-transposed-convolution",
            TRANSPOSED.format("", "", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding, over=over: (
                over(
                    conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding),
                    axes,
                )
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding, over=over: (
                of_transposed_convolution(
                    over, axes, x, w, b, strides, paddings, dilations, groups, output_padding
                )
            ),
            "reals",
            f"Each element of the image meets each weight once: their sums give the {name}.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding: (
                axes[-len(strides) :] == spatial_axes(strides)
                and covers_ends_transposed(
                    x, w, strides, paddings, dilations, output_padding, spatial_axes(strides)
                )
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
)
