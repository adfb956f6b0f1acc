"""Convolutions: what passes through them into their weights and their bias.

A kernel moves along one, two or three axes; the rules are the same, and so are the rows.
"""

from __future__ import annotations

from typing import Any

from refold.ir.shapes import pad
from refold.rules import conv_partial_sums, conv_sums
from refold.rules.image import (
    CONV,
    OVER,
    TRANSPOSED,
    Over,
    as_bias,
    channels,
    in_groups,
    is_zero,
    meets,
    of_groups,
    spatial_axes,
    swapped,
)
from refold.rules.rule import Rule
from refold.rules.safety import is_map, is_tame
from refold.rules.term import (
    Term,
    concatenated,
    conv,
    conv_transpose,
    expand,
    is_unit_along,
    linear,
    mean,
    permute,
    reshape,
    slice,
    sum,
)


def _scaled(b: Term, s: Term, strides: Any) -> Term:
    return b if is_zero(b) else b * as_bias(s, strides)


def _shifted(b: Term, added: Term) -> Term:
    return added if is_zero(b) else b + added


def _of_features(over: Over, b: Term, features: Any) -> Term:
    """The sum or mean of the biases of so many features."""
    if is_zero(b):
        return b
    if b.shape[-1] == features:
        return over(b, (-1,))
    return b * features if over is sum else b


def _of_rows(over: Over, w: Term, strides: Any, groups: int) -> Term:
    """The sum or mean of the rows of w[O,C/groups,...] -> [1,C,...]."""
    total = over(in_groups(w, strides, groups), (-3,))
    if over is mean and groups > 1:
        total = total / groups
    _, depth, *kernel = w.shape[channels(strides) - 1 :]
    return reshape(total, pad((1, groups * depth, *kernel)))


def _of_columns(over: Over, w: Term, strides: Any, groups: int) -> Term:
    """The sum or mean of the features of w[C,O/groups,...] -> [C,1,...]."""
    total = over(w, (channels(strides),))
    return total / groups if over is mean and groups > 1 else total


def _first_scaled(w: Term, s: Term, strides: Any) -> Term:
    """A weight with a factor s[1,O,1...] for each element of its first axis."""
    return w * permute(s, swapped(channels(strides) - 1, channels(strides)))


def _second_scaled(w: Term, s: Term, strides: Any, groups: int) -> Term:
    """A weight with a factor s[1,C,1...] for each element of its second axis, group by group."""
    if groups == 1:
        return w * s
    return reshape(in_groups(w, strides, groups) * of_groups(s, strides, groups), w.shape)


def of_shift(w: Term, c: Term, strides: Any, groups: int) -> Term:
    """What a shift of the channels c[1,C,1...] adds to each feature of w[O,C/groups,...]: [O]."""
    rows = sum(in_groups(w, strides, groups), (-1,))  # [groups, O/groups, C/groups, 1]
    _, features, depth, _ = rows.shape[-4:]
    each = reshape(rows, pad((groups, features, depth)))
    shift = as_bias(c, strides)
    if c.shape[channels(strides)] == 1:
        shift = expand(shift, pad((groups, 1, depth)))
    added = linear(reshape(shift, pad((groups, 1, depth))), each)
    return reshape(added, pad((groups * features,)))


def _transposed_times(
    x: Term,
    w: Term,
    b: Term,
    s: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: Any,
    output_padding: Any,
) -> Term:
    return conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding) * s


def _transposed_scaled(
    x: Term,
    w: Term,
    b: Term,
    s: Term,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: Any,
    output_padding: Any,
) -> Term:
    weight, bias = _second_scaled(w, s, strides, groups), _scaled(b, s, strides)
    return conv_transpose(x, weight, bias, strides, paddings, dilations, groups, output_padding)


def _reversed(w: Term, strides: Any, groups: int) -> Term:
    """The w[C,O/groups,...] of a transposed convolution as w[O,C/groups,...] of a convolution, each
    kernel back to front."""
    first, features, *kernel = w.shape[channels(strides) - 1 :]
    assert isinstance(first, int) and isinstance(features, int)
    for axis, size in zip(spatial_axes(strides), kernel, strict=True):
        assert isinstance(size, int)
        if size > 1:
            w = concatenated([slice(w, axis, i, 1) for i in reversed(range(size))], axis)
    grouped = permute(in_groups(w, strides, groups), swapped(-3, -2))
    return reshape(grouped, pad((groups * features, first // groups, *kernel)))


def _from_other_side(w: Term, strides: Any, paddings: Any, dilations: Any) -> tuple[int, ...]:
    """The padding of a convolution that is a transposed one by steps of one."""
    axes = spatial_axes(strides)
    return tuple(
        d * (w.shape[a] - 1) - p for a, p, d in zip(axes, paddings, dilations, strict=True)
    )


CHANNELS = (
    *(
        Rule(
            f"{name}-of-channels",
            CONV.format("", "", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: over(
                conv(x, w, b, strides, paddings, dilations, groups), axes
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, over=over: conv(
                x,
                _of_rows(over, w, strides, groups),
                _of_features(over, b, w.shape[channels(strides) - 1]),
                strides,
                paddings,
                dilations,
                1,
            ),
            "reals",
            f"The {name} of all channels is one channel, by the {name} of their weights.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
                axes == (channels(strides),)
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
    *(
        Rule(
            f"{name}-of-transposed-channels",
            TRANSPOSED.format("", "", "@axes"),
            lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding, over=over: (
                over(
                    conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding),
                    axes,
                )
            ),
            lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding, over=over: (
                conv_transpose(
                    x,
                    _of_columns(over, w, strides, groups),
                    _of_features(over, b, w.shape[channels(strides)] * groups),
                    strides,
                    paddings,
                    dilations,
                    1,
                    output_padding,
                )
            ),
            "reals",
            f"The {name} of all channels is one channel, by the {name} of their weights.",
            where=lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding: (
                axes == (channels(strides),)
            ),
            simplify=False,
        )
        for name, over in OVER
    ),
)

RESULTS = (
    Rule(
        "scale-into-convolution",
        CONV.format("!", "!", "s[1,O?,...]!"),
        lambda x, w, b, s, strides, paddings, dilations, groups: (
            conv(x, w, b, strides, paddings, dilations, groups) * s
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups: conv(
            x,
            _first_scaled(w, s, strides),
            _scaled(b, s, strides),
            strides,
            paddings,
            dilations,
            groups,
        ),
        "reals",
        "A factor for each channel of the result scales the weights and the bias of that channel.",
        where=lambda x, w, b, s, strides, paddings, dilations, groups: (
            is_unit_along(s, spatial_axes(strides)) and meets(x, w, strides, paddings, dilations)
        ),
        simplify=False,
        mark="range",
    ),
    Rule(
        "shift-into-convolution",
        CONV.format("!", "!", "c[1,O?,1...]!"),
        lambda x, w, b, c, strides, paddings, dilations, groups: (
            conv(x, w, b, strides, paddings, dilations, groups) + c
        ),
        lambda x, w, b, c, strides, paddings, dilations, groups: conv(
            x, w, _shifted(b, as_bias(c, strides)), strides, paddings, dilations, groups
        ),
        "reals",
        "A shift of each channel of the result is a part of the bias.",
        simplify=False,
    ),
    # of a parameter, NaN is not seen in places that meet nothing of the image
    Rule(
        "scale-into-transposed-convolution",
        TRANSPOSED.format("!", "!", "s[1,F?,1...]!"),
        _transposed_times,
        _transposed_scaled,
        "finite",
        "A factor for each channel of the result scales the weights and the bias of that channel.",
        simplify=False,
        mark="range",
    ),
    Rule(
        "known-scale-into-transposed-convolution",
        TRANSPOSED.format("!", "!", "s[1,F?,1...]!"),
        _transposed_times,
        _transposed_scaled,
        "reals",
        "A factor that is a known number scales the weights and the bias of each channel.",
        where=lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: is_tame(s),
        simplify=False,
    ),
    Rule(
        "shift-into-transposed-convolution",
        TRANSPOSED.format("!", "!", "c[1,F?,1...]!"),
        lambda x, w, b, c, strides, paddings, dilations, groups, output_padding: (
            conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding) + c
        ),
        lambda x, w, b, c, strides, paddings, dilations, groups, output_padding: conv_transpose(
            x,
            w,
            _shifted(b, as_bias(c, strides)),
            strides,
            paddings,
            dilations,
            groups,
            output_padding,
        ),
        "reals",
        "A shift of each channel of the result is a part of the bias.",
        where=lambda x, w, b, c, strides, paddings, dilations, groups, output_padding: (
            c.shape[channels(strides)] in (1, w.shape[channels(strides)] * groups)
        ),
        simplify=False,
    ),
)

# PyTorch's convolution is faster than its transposed one, and more rules know it
STEPS_OF_ONE = Rule(
    "transposed-convolution-by-steps-of-one",
    TRANSPOSED.format("!", "", ""),
    lambda x, w, b, strides, paddings, dilations, groups, output_padding: conv_transpose(
        x, w, b, strides, paddings, dilations, groups, output_padding
    ),
    lambda x, w, b, strides, paddings, dilations, groups, output_padding: conv(
        x,
        _reversed(w, strides, groups),
        b,
        strides,
        _from_other_side(w, strides, paddings, dilations),
        dilations,
        groups,
    ),
    "reals",
    "By steps of one a transposed convolution is a convolution whose kernels lie back to front.",
    where=lambda x, w, b, strides, paddings, dilations, groups, output_padding: (
        set(strides) == {1}
        and not any(output_padding)
        and all(p >= 0 for p in _from_other_side(w, strides, paddings, dilations))
    ),
)

# of a chain in front of a convolution an e-graph would keep every way to take a part of it in
OPERANDS = (
    Rule(
        "convolution-of-scaled",
        CONV.format("!", "", "s[1,C?,1...]!"),
        lambda x, w, b, s, strides, paddings, dilations, groups: conv(
            x * s, w, b, strides, paddings, dilations, groups
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups: conv(
            x, _second_scaled(w, s, strides, groups), b, strides, paddings, dilations, groups
        ),
        "reals",
        "A factor for each channel of the image scales the weights that meet that channel.",
        simplify=lambda x, w, b, s, strides, paddings, dilations, groups: True,
        mark="range",
    ),
    Rule(
        "convolution-of-shifted",
        CONV.format("!", "!", "c[1,C?,1...]!"),
        lambda x, w, b, c, strides, paddings, dilations, groups: conv(
            x + c, w, b, strides, paddings, dilations, groups
        ),
        lambda x, w, b, c, strides, paddings, dilations, groups: conv(
            x,
            w,
            _shifted(b, of_shift(w, c, strides, groups)),
            strides,
            paddings,
            dilations,
            groups,
        ),
        "reals",
        "Where nothing is padded, each weight meets the shift of its channel at every place.",
        where=lambda x, w, b, c, strides, paddings, dilations, groups: not any(paddings),
        simplify=lambda x, w, b, c, strides, paddings, dilations, groups: True,
        mark="cancels",
        safe=lambda x, w, b, c, strides, paddings, dilations, groups: is_map(x),
    ),
    Rule(
        "transposed-convolution-of-scaled",
        TRANSPOSED.format("!", "", "s[1,C?,1...]!"),
        lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: conv_transpose(
            x * s, w, b, strides, paddings, dilations, groups, output_padding
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: conv_transpose(
            x,
            _first_scaled(w, s, strides),
            b,
            strides,
            paddings,
            dilations,
            groups,
            output_padding,
        ),
        "reals",
        "A factor for each channel of the image scales the weights that meet that channel.",
        simplify=lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: True,
        mark="range",
    ),
)

RULES = (*conv_sums.RULES, *conv_partial_sums.RULES, *CHANNELS, *RESULTS, *OPERANDS, STEPS_OF_ONE)
