"""Rules about convolutions that look right and are not, each by one thing that it forgets."""

from collections.abc import Callable
from typing import Any

from refold.rules import Rule
from refold.rules.conv_sums import of_convolution, of_transposed_convolution
from refold.rules.image import CONV, TRANSPOSED, channels, is_zero, spatial_axes, swapped
from refold.rules.term import conv, conv_transpose, mean, permute, sum


def false(
    name: str,
    signature: str,
    lhs: Callable[..., Any],
    rhs: Callable[..., Any],
    where: Callable[..., bool] | None = None,
    exact: Any = "finite",
) -> Rule:
    return Rule(name, signature, lhs, rhs, exact, "False.", where=where)


FALSE = (
    # the windows of a convolution leave out rows and columns at the ends
    false(
        "mean-of-convolution-by-the-mean-alone",
        CONV.format("", "", "@axes"),
        lambda x, w, b, axes, strides, paddings, dilations, groups: mean(
            conv(x, w, b, strides, paddings, dilations, groups), axes
        ),
        lambda x, w, b, axes, strides, paddings, dilations, groups: conv(
            mean(x, axes), sum(w, axes), b, strides, (0,) * len(strides), dilations, groups
        ),
        where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
            axes == spatial_axes(strides)
        ),
    ),
    # a bias is not scaled by what scales the weight
    false(
        "scale-of-the-weight-alone",
        TRANSPOSED.format("!", "!", "s[1,F?,1...]!"),
        lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: (
            conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding) * s
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: conv_transpose(
            x, w * s, b, strides, paddings, dilations, groups, output_padding
        ),
        where=lambda x, w, b, s, strides, paddings, dilations, groups, output_padding: groups == 1,
    ),
    # an element of the kernel reaches as far as the kernel is spread
    false(
        "sum-of-dilated-convolution-as-of-a-dense-one",
        CONV.format("", "", "@axes"),
        lambda x, w, b, axes, strides, paddings, dilations, groups: sum(
            conv(x, w, b, strides, paddings, dilations, groups), axes
        ),
        lambda x, w, b, axes, strides, paddings, dilations, groups: of_convolution(
            sum, axes, x, w, b, strides, paddings, (1,) * len(strides), groups
        ),
        where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
            axes == spatial_axes(strides) and is_zero(b)
        ),
    ),
    # a stride passes over what lies between
    false(
        "sum-of-strided-convolution-by-windows",
        CONV.format("", "", "@axes"),
        lambda x, w, b, axes, strides, paddings, dilations, groups: sum(
            conv(x, w, b, strides, paddings, dilations, groups), axes
        ),
        lambda x, w, b, axes, strides, paddings, dilations, groups: of_convolution(
            sum, axes, x, w, b, (1,) * len(strides), paddings, dilations, groups
        ),
        where=lambda x, w, b, axes, strides, paddings, dilations, groups: (
            axes == spatial_axes(strides) and is_zero(b)
        ),
    ),
    # what is cut off at the ends of the result has met less of the image
    false(
        "sum-of-padded-transposed-convolution-by-the-sum-alone",
        TRANSPOSED.format("", "", "@axes"),
        lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding: sum(
            conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding), axes
        ),
        lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding: (
            of_transposed_convolution(
                sum, axes, x, w, b, strides, (0,) * len(strides), dilations, groups, output_padding
            )
        ),
        where=lambda x, w, b, axes, strides, paddings, dilations, groups, output_padding: (
            axes == spatial_axes(strides) and is_zero(b)
        ),
    ),
    # zeros that are padded are not shifted
    false(
        "convolution-of-shifted-and-padded",
        CONV.format("", "", "c[1,C,1...]"),
        lambda x, w, b, c, strides, paddings, dilations, groups: conv(
            x + c, w, b, strides, paddings, dilations, groups
        ),
        lambda x, w, b, c, strides, paddings, dilations, groups: (
            conv(x, w, b, strides, paddings, dilations, groups)
            + conv(
                c, sum(w, spatial_axes(strides)), 0, strides, (0,) * len(strides), dilations, groups
            )
        ),
    ),
    # a factor of the channels meets the columns of the weight, not its rows
    false(
        "scale-of-channels-into-features",
        CONV.format("", "", "s[1,C,1...]"),
        lambda x, w, b, s, strides, paddings, dilations, groups: conv(
            x * s, w, b, strides, paddings, dilations, groups
        ),
        lambda x, w, b, s, strides, paddings, dilations, groups: conv(
            x,
            w * permute(s, swapped(channels(strides) - 1, channels(strides))),
            b,
            strides,
            paddings,
            dilations,
            groups,
        ),
    ),
)
