"""Convolutions: what passes through them into their weights, and sums that need no convolution.

`conv(x, w, b)` is linear in x and in w. A sum over all positions of the result meets every weight
with a sum over a window of x; so it is one product of small sums, whatever the size of the image.
A window is all of the image but a few rows and columns at its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refold.ir import numel
from refold.rules.rule import Rule
from refold.rules.term import (
    Term,
    conv,
    conv_transpose,
    cut,
    flat,
    join,
    linear,
    mean,
    permute,
    reshape,
    sum,
)

Over = Callable[..., Term]  # sum or mean
OVER = (("sum", sum), ("mean", mean))

LAST_TO_CHANNELS = (0, 3, 1, 2)  # [N,1,1,O] -> [N,O,1,1]
CHANNELS_TO_LAST = (0, 2, 3, 1)
FIRST_TWO = (1, 0, 2, 3)
PLACES = (-2, -1)

CONV = "x[N,C,H,W] w[O,C,I,J]{} b {} @strides @paddings @dilations @groups"
TRANSPOSED = "x[N,C,H,W] w[C,O,I,J]{} b {} @strides @paddings @dilations @groups @extras"


def _is_zero(b: Term) -> bool:
    return b.node.op == "scalar" and b.node["value"] == 0


def _scaled(b: Term, s: Term) -> Term:
    return b if _is_zero(b) else b * permute(s, CHANNELS_TO_LAST)


def _shifted(b: Term, c: Term) -> Term:
    c = permute(c, CHANNELS_TO_LAST)
    return c if _is_zero(b) else b + c


def _of_features(over: Over, b: Term, features: Any) -> Term:
    """The sum or mean of the biases of so many features."""
    if _is_zero(b):
        return b
    if b.shape[-1] == features:
        return over(b, (-1,))
    return b * features if over is sum else b


def _windows(x: Term, w: Term, paddings: Any) -> Term:
    """For each element of the kernel, the sum of what it meets: [N,C,H,W] -> [N,C,I,J].

    That is all but a few at either end: what is left out is taken from the sum of all.
    """
    for axis in PLACES:
        total = sum(x, (axis,))
        parts = []
        for before, after in _left_out(w.shape[axis], paddings[axis]):
            met = total
            if before:
                met = met - sum(cut(x, axis, 0, before), (axis,))
            if after:
                met = met - sum(cut(x, axis, x.shape[axis] - after, after), (axis,))
            parts.append(met)
        x = parts[0]
        for part in parts[1:]:
            x = join(x, part, axis)
    return x


def _left_out(kernel: Any, padding: int) -> list[tuple[int, int]]:
    """For each element along one axis of the kernel, how many it does not meet at either end."""
    last = kernel - 1
    return [(max(0, i - padding), max(0, last - padding - i)) for i in range(kernel)]


def _fits(x: Term, w: Term, paddings: Any) -> bool:
    """Are there as many as are left out? A size that varies is at least 2."""
    for a in PLACES:
        size = x.shape[a]
        least = size if isinstance(size, int) else 2
        if any(max(most) > least for most in _left_out(w.shape[a], paddings[a])):
            return False
    return True


def _meets(w: Term, paddings: Any, dilations: Any) -> bool:
    """Does every place of the result meet some of the image, so that a factor NaN is seen in it?"""
    return dilations == (1, 1) and all(paddings[a] < w.shape[a] for a in PLACES)


def _of_conv(over: Over, axes: Any, x: Term, w: Term, b: Term, paddings: Any, whole: Term) -> Term:
    met = _windows(x, w, paddings)
    features, *rest = w.shape
    row = reshape(met, (x.shape[0], 1, 1, numel(rest)))
    product = linear(row, reshape(w, (1, 1, features, numel(rest))))
    return _of_places(over, axes, product, b, whole)


def _of_transposed(over: Over, axes: Any, x: Term, w: Term, b: Term, whole: Term) -> Term:
    row = permute(sum(x, PLACES), CHANNELS_TO_LAST)
    product = linear(row, permute(sum(w, PLACES), (2, 3, 1, 0)))
    return _of_places(over, axes, product, b, whole)


def _of_places(over: Over, axes: Any, product: Term, b: Term, whole: Term) -> Term:
    """The sum or mean of a convolution over `axes`, from its sums [N,1,1,O] without a bias."""
    places = numel(whole.shape[a] for a in PLACES)
    total = product if _is_zero(b) else product + b * places
    each = permute(total, LAST_TO_CHANNELS)
    each = each if over is sum else each / places
    rest = tuple(a for a in axes if a not in PLACES)
    return over(each, rest) if rest else each


SUMS = (
    *(
        Rule(
            f"{name}-of-convolution",
            CONV.format("", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: over(
                conv(x, w, b, strides, paddings, dilations, groups), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: _of_conv(
                over, axes, x, w, b, paddings, conv(x, w, b, strides, paddings, dilations, groups)
            ),
            "reals",
            f"The {name} over all places meets each weight with the sum of a window of the image.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
                axes[-2:] == PLACES
                and strides == dilations == (1, 1)
                and groups == 1
                and _fits(x, w, paddings)
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
    *(
        Rule(
            f"{name}-of-transposed-convolution",
            TRANSPOSED.format("", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, extras, over=over: over(
                conv_transpose(x, w, b, strides, paddings, dilations, groups, extras), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, extras, over=over: (
                _of_transposed(
                    over,
                    axes,
                    x,
                    w,
                    b,
                    conv_transpose(x, w, b, strides, paddings, dilations, groups, extras),
                )
            ),
            "reals",
            f"Each element of the image meets each weight once: their sums give the {name}.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups, extras: (
                axes[-2:] == PLACES and paddings == (0, 0) and groups == 1
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
)

CHANNELS = (
    *(
        Rule(
            f"{name}-of-channels",
            CONV.format("", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: over(
                conv(x, w, b, strides, paddings, dilations, groups), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: conv(
                x,
                over(w, (-4,)),
                _of_features(over, b, w.shape[0]),
                strides,
                paddings,
                dilations,
                groups,
            ),
            "reals",
            f"The {name} of all channels is one channel, by the {name} of their weights.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
                axes == (-3,) and groups == 1
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
    *(
        Rule(
            f"{name}-of-transposed-channels",
            TRANSPOSED.format("", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, extras, over=over: over(
                conv_transpose(x, w, b, strides, paddings, dilations, groups, extras), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, extras, over=over: (
                conv_transpose(
                    x,
                    over(w, (-3,)),
                    _of_features(over, b, w.shape[1]),
                    strides,
                    paddings,
                    dilations,
                    groups,
                    extras,
                )
            ),
            "reals",
            f"The {name} of all channels is one channel, by the {name} of their weights.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups, extras: (
                axes == (-3,) and groups == 1
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
)

SCALES = (
    Rule(
        "scale-into-convolution",
        CONV.format("!", "s!"),
        lambda x, w, b, s, strides, paddings, dilations, groups: (
            conv(x, w, b, strides, paddings, dilations, groups) * s
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups: conv(
            x, w * permute(s, FIRST_TWO), _scaled(b, s), strides, paddings, dilations, groups
        ),
        "reals",
        "A factor for each channel of the result scales the weights and the bias of that channel.",
        where=lambda x, w, b, s, strides, paddings, dilations, groups: (
            flat(s, (-4, -2, -1)) and _meets(w, paddings, dilations)
        ),
        simplify=False,
    ),
    Rule(
        "shift-into-convolution",
        CONV.format("!", "c!"),
        lambda x, w, b, c, strides, paddings, dilations, groups: (
            conv(x, w, b, strides, paddings, dilations, groups) + c
        ),
        lambda x, w, b, c, strides, paddings, dilations, groups: conv(
            x, w, _shifted(b, c), strides, paddings, dilations, groups
        ),
        "reals",
        "A shift of each channel of the result is a part of the bias.",
        where=lambda x, w, b, c, strides, paddings, dilations, groups: (
            flat(c, (-4, -2, -1)) and c.shape[1] in (1, w.shape[0])
        ),
        simplify=False,
    ),
    Rule(
        "scale-into-transposed-convolution",
        TRANSPOSED.format("!", "s!"),
        lambda x, w, b, s, strides, paddings, dilations, groups, extras: (
            conv_transpose(x, w, b, strides, paddings, dilations, groups, extras) * s
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups, extras: conv_transpose(
            x, w * s, _scaled(b, s), strides, paddings, dilations, groups, extras
        ),
        "finite",
        "A factor for each channel of the result scales the weights and the bias of that channel.",
        where=lambda x, w, b, s, strides, paddings, dilations, groups, extras: (
            groups == 1 and flat(s, (-4, -2, -1))
        ),
        simplify=False,
    ),
    Rule(
        "shift-into-transposed-convolution",
        TRANSPOSED.format("!", "c!"),
        lambda x, w, b, c, strides, paddings, dilations, groups, extras: (
            conv_transpose(x, w, b, strides, paddings, dilations, groups, extras) + c
        ),
        lambda x, w, b, c, strides, paddings, dilations, groups, extras: conv_transpose(
            x, w, _shifted(b, c), strides, paddings, dilations, groups, extras
        ),
        "reals",
        "A shift of each channel of the result is a part of the bias.",
        where=lambda x, w, b, c, strides, paddings, dilations, groups, extras: (
            flat(c, (-4, -2, -1)) and c.shape[1] in (1, w.shape[1] * groups)
        ),
        simplify=False,
    ),
)

RULES = (*SUMS, *CHANNELS, *SCALES)
