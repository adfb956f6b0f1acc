"""ATen's convolutions in two dimensions, with their bias."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from refold.capture.registry import Out, handles, need, result
from refold.capture.values import Unsupported, Value
from refold.ir import Node, as_scalar, make


def _pair(sizes: Sequence[int] | int) -> tuple[int, int]:
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    first, last = given[0], given[-1]
    return int(first), int(last)


def _operands(out: Out, x: Value, w: Value, bias: Value | None) -> tuple[Node, Node, Node]:
    # of 16 bits the kernels of the library stay as they are, with what they round
    need(out[1] in (torch.float32, torch.float64), f"a convolution in {out[1]}")
    need(x.rank == 4 and w.rank == 4, "an unbatched convolution")
    given = (x, w) if bias is None else (x, w, bias)
    need(all(v.dtype == out[1] for v in given), "mixed dtypes")
    return x.node, w.node, as_scalar(0.0, out[1]) if bias is None else bias.node


@handles("conv2d")
def _conv2d(
    out: Out,
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Sequence[int] | int = 1,
    padding: Sequence[int] | int | str = 0,
    dilation: Sequence[int] | int = 1,
    groups: int = 1,
) -> Value:
    if isinstance(padding, str):
        raise Unsupported("padding by name")
    node = make(
        "conv",
        *_operands(out, x, w, bias),
        strides=_pair(stride),
        paddings=_pair(padding),
        dilations=_pair(dilation),
        groups=groups,
    )
    return result(node, out)


@handles("conv_transpose2d")
def _conv_transpose2d(
    out: Out,
    x: Value,
    w: Value,
    bias: Value | None = None,
    stride: Sequence[int] | int = 1,
    padding: Sequence[int] | int = 0,
    output_padding: Sequence[int] | int = 0,
    groups: int = 1,
    dilation: Sequence[int] | int = 1,
) -> Value:
    node = make(
        "conv_transpose",
        *_operands(out, x, w, bias),
        strides=_pair(stride),
        paddings=_pair(padding),
        dilations=_pair(dilation),
        groups=groups,
        extras=_pair(output_padding),
    )
    return result(node, out)
