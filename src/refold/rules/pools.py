"""Pooling of images: means of windows, which a convolution before them takes into its kernel.

The mean of a window of `conv(x, w, b)` is the convolution with the mean of w, laid on once for each
element of the window: a larger kernel, further apart, and no image of the size that is pooled. A
transposed convolution whose steps the windows take in becomes a convolution: what it spreads is
gathered where it lies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from refold.ir.shapes import RANK, pad
from refold.rules.image import CONV, OVER, TRANSPOSED, channels, in_groups, spatial_axes, swapped
from refold.rules.rule import Rule
from refold.rules.term import (
    Term,
    avg_pool,
    concatenated,
    constant,
    conv,
    conv_transpose,
    image_pool,
    mean,
    permute,
    reshape,
    slice,
    sum,
)


def _each_kernel(w: Term, strides: Any) -> Term:
    """w[O,D,...] as images of one channel: [O*D,1,...]."""
    first, second, *kernel = w.shape[channels(strides) - 1 :]
    assert isinstance(first, int)
    return reshape(w, pad((first * second, 1, *kernel)))


def _window(sizes: Any, like: Term) -> Term:
    """The kernel [1,1,...] that takes means."""
    return constant(1 / math.prod(sizes), like, pad((1, 1, *sizes)))


def _dense(w: Term, sizes: Any, strides: Any, dilations: Any) -> bool:
    """Is there a weight for each element of the composed kernel?"""
    for a, size, stride, dilation in zip(
        spatial_axes(strides), sizes, strides, dilations, strict=True
    ):
        kernel = w.shape[a]
        assert isinstance(kernel, int)
        taken = {dilation * i + stride * j for i in range(kernel) for j in range(size)}
        if len(taken) <= max(taken):
            return False
    return True


def of_convolution(x: Term, w: Term, b: Term, sizes: Any, steps: Any, *numbers: Any) -> Term:
    strides, paddings, dilations, groups = numbers
    if not _dense(w, sizes, strides, dilations):
        # as it is: the zeros of a kernel with holes would make NaN of infinities
        return image_pool(conv(x, w, b, *numbers), sizes, steps)
    none, zeros, n = constant(0, w, (1,) * RANK), (0,) * len(strides), len(strides)
    images = _each_kernel(w, strides)
    laid = conv_transpose(images, _window(sizes, w), none, dilations, zeros, strides, 1, zeros)
    kernel = reshape(laid, pad((*w.shape[channels(strides) - 1 : -n], *laid.shape[-n:])))
    apart = tuple(s * t for s, t in zip(strides, steps, strict=True))
    return conv(x, kernel, b, apart, paddings, (1,) * n, groups)


@dataclass(frozen=True)
class _Gathered:
    """Along one axis, the convolution that gathers what a transposed one spreads into windows.

    Tap t of `-before ... behind` has what an element of the image adds to the window that begins t
    windows of the stride behind it. step: how many elements lie between windows.
    """

    size: int
    kernel: int
    window: int
    step: int
    stride: int
    padding: int
    made: int

    @property
    def before(self) -> int:
        return (self.window - 1 + self.padding) // self.stride

    @property
    def behind(self) -> int:
        return (self.kernel - 1 - self.padding) // self.stride

    @property
    def taps(self) -> int:
        return self.before + self.behind + 1

    @property
    def kernel_start(self) -> int:
        """How many windows of the kernel to leave out, so that there are enough of them."""
        least = self.stride * self.before - self.padding
        for start in range(self.kernel + self.window + 2):
            padding = least + self.stride * start
            there = (self.kernel + 2 * padding - self.window) // self.stride + 1
            if padding >= 0 and there >= start + self.taps:
                return start
        raise ValueError("no windows")

    @property
    def kernel_padding(self) -> int:
        return self.stride * (self.before + self.kernel_start) - self.padding

    @property
    def start(self) -> int:
        """How many results to leave out, so that there are enough of them."""
        there = (self.size + 2 * self.behind - self.taps) // self.step + 1
        return max(0, self.made - there)


def _gathered(x: Term, w: Term, sizes: Any, steps: Any, *numbers: Any) -> list[_Gathered]:
    """For each place; none where the windows do not take in the strides."""
    strides, paddings, dilations, output_padding = numbers
    found = []
    for a, k, t, s, p, d, e in zip(
        spatial_axes(strides),
        sizes,
        steps,
        strides,
        paddings,
        dilations,
        output_padding,
        strict=True,
    ):
        n, kernel = x.shape[a], w.shape[a]
        assert isinstance(kernel, int)
        if not isinstance(n, int) or t % s or d != 1 or kernel <= p:
            return []
        made = ((n - 1) * s - 2 * p + kernel + e - k) // t + 1
        found.append(_Gathered(n, kernel, k, t // s, s, p, made))
    return found


def of_transposed_convolution(
    x: Term, w: Term, b: Term, sizes: Any, steps: Any, *numbers: Any
) -> Term:
    strides, paddings, dilations, groups, output_padding = numbers
    along = _gathered(x, w, sizes, steps, strides, paddings, dilations, output_padding)
    none, n = constant(0, w, (1,) * RANK), len(strides)
    margins, ones = tuple(g.kernel_padding for g in along), (1,) * n
    taps = conv(_each_kernel(w, strides), _window(sizes, w), none, strides, margins, ones, 1)
    for a, g in zip(spatial_axes(strides), along, strict=True):
        order = range(g.kernel_start + g.taps - 1, g.kernel_start - 1, -1)
        taps = concatenated([slice(taps, a, i, 1) for i in order], a)
    first, second = w.shape[channels(strides) - 1 : -n]
    kernel = reshape(taps, pad((first, second, *taps.shape[-n:])))
    rows = permute(in_groups(kernel, strides, groups), swapped(-3, -2))
    rows = reshape(rows, pad((second * groups, first // groups, *taps.shape[-n:])))
    apart = tuple(g.step for g in along)
    margins = tuple(g.behind + g.step * g.start for g in along)
    made = conv(x, rows, b, apart, margins, ones, groups)
    for a, g in zip(spatial_axes(strides), along, strict=True):
        if made.shape[a] != g.made:
            made = slice(made, a, g.start, g.made)
    return made


def _tiles(x: Term, sizes: Any, strides: Any) -> bool:
    """Do the windows cover the image, each element once?"""
    given = [x.shape[a] for a in spatial_axes(strides)]
    return sizes == strides and all(
        isinstance(n, int) and n % k == 0 for n, k in zip(given, sizes, strict=True)
    )


def _is_line(
    x: Term,
    w: Term,
    b: Term,
    size: int,
    stride: int,
    count_include_pad: bool,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: int,
) -> bool:
    return len(strides) == 1


def _takes_in_strides(
    x: Term,
    w: Term,
    b: Term,
    sizes: Any,
    strides2: Any,
    strides: Any,
    paddings: Any,
    dilations: Any,
    groups: int,
    output_padding: Any,
) -> bool:
    numbers = (strides, paddings, dilations, output_padding)
    return len(sizes) == len(strides) and bool(_gathered(x, w, sizes, strides2, *numbers))


CONVOLVED = (
    Rule(
        "pool-of-convolution",
        CONV.format("", "", "@sizes @strides2"),
        lambda x, w, b, sizes, strides2, strides, paddings, dilations, groups: image_pool(
            conv(x, w, b, strides, paddings, dilations, groups), sizes, strides2
        ),
        lambda x, w, b, sizes, strides2, strides, paddings, dilations, groups: of_convolution(
            x, w, b, sizes, strides2, strides, paddings, dilations, groups
        ),
        "reals",
        "Means of windows of a convolution are one convolution, with a kernel of such means.",
        simplify=False,
    ),
    Rule(
        "pool-of-transposed-convolution",
        TRANSPOSED.format("", "", "@sizes @strides2"),
        lambda x, w, b, sizes, strides2, strides, paddings, dilations, groups, output_padding: (
            image_pool(
                conv_transpose(x, w, b, strides, paddings, dilations, groups, output_padding),
                sizes,
                strides2,
            )
        ),
        lambda x, w, b, sizes, strides2, strides, paddings, dilations, groups, output_padding: (
            of_transposed_convolution(
                x, w, b, sizes, strides2, strides, paddings, dilations, groups, output_padding
            )
        ),
        "reals",
        "Windows gather what a transposed convolution spreads: a convolution does, where it lies.",
        where=_takes_in_strides,
        simplify=False,
    ),
    Rule(
        "pool-of-convolution-along-a-line",
        CONV.format("", "", "@size @stride @count_include_pad"),
        lambda x, w, b, size, stride, count_include_pad, strides, paddings, dilations, groups: (
            avg_pool(
                conv(x, w, b, strides, paddings, dilations, groups),
                size,
                stride,
                0,
                count_include_pad,
            )
        ),
        lambda x, w, b, size, stride, count_include_pad, strides, paddings, dilations, groups: (
            of_convolution(x, w, b, (size,), (stride,), strides, paddings, dilations, groups)
        ),
        "reals",
        "Means of windows of a convolution are one convolution, with a kernel of such means.",
        where=_is_line,
        simplify=False,
    ),
)

MOVED = (
    Rule(
        "pool-of-pooled-image",
        "x[N,C,...] @sizes @strides @sizes2 @strides2",
        lambda x, sizes, strides, sizes2, strides2: image_pool(
            image_pool(x, sizes, strides), sizes2, strides2
        ),
        lambda x, sizes, strides, sizes2, strides2: image_pool(
            x,
            tuple(a * b for a, b in zip(sizes, sizes2, strict=True)),
            tuple(a * b for a, b in zip(strides, strides2, strict=True)),
        ),
        "reals",
        "Means of means of tiles are means of larger tiles.",
        where=lambda x, sizes, strides, sizes2, strides2: sizes == strides,
    ),
    *(
        Rule(
            f"{name}-of-tiles",
            "x[N,C,...] @sizes @strides @axes",
            lambda x, sizes, strides, axes, over=over: over(image_pool(x, sizes, strides), axes),
            lambda x, sizes, strides, axes, over=over: (
                mean(x, axes) if over is mean else sum(x, axes) / math.prod(sizes)
            ),
            "reals",
            f"The {name} of the means of tiles is that of the whole image.",
            where=lambda x, sizes, strides, axes: (
                axes[-len(strides) :] == spatial_axes(strides) and _tiles(x, sizes, strides)
            ),
        )
        for name, over in OVER
    ),
)

RULES = (*CONVOLVED, *MOVED)
