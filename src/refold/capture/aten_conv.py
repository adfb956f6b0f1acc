"""ATen's convolutions along one, two and three axes, with their bias."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Value
from refold.ir import Node, as_scalar, make

Sizes = Sequence[int] | int


def each(sizes: Sizes, places: int) -> tuple[int, ...]:
    """One number for each axis."""
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    return tuple(map(int, given * places if len(given) == 1 else given))


def _paddings(given: Sizes | str, w: Value, dilations: tuple[int, ...]) -> tuple[int, ...]:
    """What is padded at either end of each axis, also where it is given by name."""
    if not isinstance(given, str):
        return each(given, len(dilations))
    if given == "valid":
        return (0,) * len(dilations)
    kernel = tuple(k for k in w.shape[2:] if isinstance(k, int))
    need(len(kernel) == len(dilations), "a kernel whose size varies")
    added = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    need(all(n % 2 == 0 for n in added), "a padding that is larger at the end")
    return tuple(n // 2 for n in added)


def _operands(
    out: Out, x: Value, w: Value, bias: Value | None, places: int
) -> tuple[Node, Node, Node]:
    # of 16 bits the kernels of the library stay as they are, with what they round
    need(out[1] in (torch.float32, torch.float64), f"a convolution in {out[1]}")
    need(x.rank == w.rank == places + 2, "an unbatched convolution")
    given = (x, w) if bias is None else (x, w, bias)
    need(all(v.dtype == out[1] for v in given), "mixed dtypes")
    return x.node, w.node, as_scalar(0.0, out[1]) if bias is None else bias.node


def _convolution(places: int) -> Callable[..., Value]:
    def handler(
        out: Out,
        x: Value,
        w: Value,
        bias: Value | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Value:
        dilations = each(dilation, places)
        node = make(
            "conv",
            *_operands(out, x, w, bias, places),
            strides=each(stride, places),
            paddings=_paddings(padding, w, dilations),
            dilations=dilations,
            groups=groups,
        )
        return result(node, out)

    return handler


def _transposed(places: int) -> Callable[..., Value]:
    def handler(
        out: Out,
        x: Value,
        w: Value,
        bias: Value | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Value:
        node = make(
            "conv_transpose",
            *_operands(out, x, w, bias, places),
            strides=each(stride, places),
            paddings=each(padding, places),
            dilations=each(dilation, places),
            groups=groups,
            output_padding=each(output_padding, places),
        )
        return result(node, out)

    return handler


for _places in (1, 2, 3):
    HANDLERS[f"conv{_places}d"] = _convolution(_places)
    HANDLERS[f"conv_transpose{_places}d"] = _transposed(_places)


@handles("convolution")
def _any(
    out: Out,
    x: Value,
    w: Value,
    bias: Value | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Value:
    """What all of the others are once autograd has taken them apart."""
    places = x.rank - 2
    need(places in (1, 2, 3), "a convolution along another number of axes")
    given = (out, x, w, bias, stride, padding)
    if transposed:
        return _transposed(places)(*given, output_padding, groups, dilation)
    return _convolution(places)(*given, dilation, groups)
