"""Sums over some of the spatial axes of a convolution leave a convolution along the others.

What an element of the kernel meets along a summed axis becomes a channel of its own, as
`conv_sums` has it for all of them: the image shrinks to the size of the kernel there, and the
elements of the kernel move to the channels of the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refold.ir import Dim, numel
from refold.ir.shapes import RANK, pad
from refold.rules.conv_sums import (
    covers_ends,
    covers_ends_transposed,
    transposed_window_sums,
    window_sums,
)
from refold.rules.image import CONV, OVER, TRANSPOSED, Over, channels, is_zero, spatial_axes
from refold.rules.rule import Rule
from refold.rules.term import AXES, Term, conv, conv_transpose, mean, permute, reshape


def _summed(axes: Any, strides: Any) -> tuple[int, ...]:
    return tuple(a for a in spatial_axes(strides) if a in axes)


def _some(axes: Any, strides: Any) -> bool:
    return 0 < len(_summed(axes, strides)) < len(strides)


def _kept(values: Any, axes: Any) -> tuple[Any, ...]:
    """Of values for each place those along which no sum goes."""
    return tuple(v for a, v in zip(spatial_axes(values), values, strict=True) if a not in axes)


def _as_channels(x: Term, strides: Any, axes: Any, into: int) -> Term:
    """The elements along the summed axes become a part of the axis `into`: x[N,C,...] -> [N,C *
    elements, other spatial axes]."""
    summed = _summed(axes, strides)
    front = range(-RANK, into + 1)
    behind = [a for a in range(into + 1, 0) if a not in summed]
    order = tuple(RANK + a for a in (*front, *summed, *behind))
    width = numel(x.shape[a] for a in (into, *summed))
    shape = pad((*(x.shape[a] for a in front if a != into), width, *(x.shape[a] for a in behind)))
    return reshape(permute(x, order), shape)


def _of(
    over: Over,
    axes: Any,
    strides: Any,
    whole: tuple[Dim, ...],
    w: Term,
    b: Term,
    made: Callable[[Term, Term], Term],
) -> Term:
    """The sum or mean over `axes` by what is made of weight and bias along the others."""
    summed = _summed(axes, strides)
    count = numel(whole[a] for a in summed)
    if over is mean:
        w = w / count
    elif not is_zero(b):
        b = b * count
    each = reshape(made(w, b), tuple(1 if a in summed else whole[a] for a in AXES))
    rest = tuple(a for a in axes if a not in summed)
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
    summed = _summed(axes, strides)
    whole = conv(x, w, b, strides, paddings, dilations, groups).shape
    into = channels(strides)
    image = _as_channels(
        window_sums(x, w, strides, paddings, dilations, whole, summed), strides, axes, into
    )
    stride, padding, dilation = (_kept(v, summed) for v in (strides, paddings, dilations))
    return _of(
        over,
        axes,
        strides,
        whole,
        _as_channels(w, strides, axes, into),
        b,
        lambda w, b: conv(image, w, b, stride, padding, dilation, groups),
    )


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
    summed = _summed(axes, strides)
    whole = conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding).shape
    x = transposed_window_sums(x, w, strides, paddings, dilations, output_padding, summed)
    into = channels(strides)
    image = _as_channels(x, strides, axes, into)
    stride, padding, dilation, extra = (
        _kept(v, summed) for v in (strides, paddings, dilations, output_padding)
    )
    return _of(
        over,
        axes,
        strides,
        whole,
        _as_channels(w, strides, axes, into - 1),
        b,
        lambda w, b: conv_transpose(image, w, b, stride, padding, dilation, groups, extra),
    )


RULES = (
    *(
        Rule(
            f"{name}-of-convolution-along-some-places",
            CONV.format("", "", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: over(
                conv(x, w, b, strides, paddings, dilations, groups), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: of_convolution(
                over, axes, x, w, b, strides, paddings, dilations, groups
            ),
            "reals",
            f"The {name} along an axis leaves a convolution along the others, of summed images.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
                _some(axes, strides)
                and covers_ends(x, w, strides, paddings, dilations, _summed(axes, strides))
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
    *(
        Rule(
            f"{name}-of-transposed-convolution-along-some-places",
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
            f"The {name} along an axis leaves a convolution along the others, of summed images.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding: (
                _some(axes, strides)
                and covers_ends_transposed(
                    x, w, strides, paddings, dilations, output_padding, _summed(axes, strides)
                )
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
)
