"""Contractions, convolutions and pooling of images.

A convolution is PyTorch's own, along as many axes (`places`) as there are strides. Its bias of one
element is that of every feature.
"""

from __future__ import annotations

from functools import partial

from refold.ir import bounds, convolution, shapes
from refold.ir.op import Attrs, Carried, Kind, Op, Reduction, Rounding

_WINDOW = ("strides", "paddings", "dilations", "groups")


def _image(attrs: Attrs) -> int:
    """The axes of an image: a batch, its channels and its places."""
    return len(attrs["strides"]) + 2


def _convolution_ranks(attrs: Attrs) -> tuple[int | None, ...]:
    return _image(attrs), _image(attrs), None


def _pool_ranks(attrs: Attrs) -> tuple[int | None, ...]:
    return (_image(attrs),)


def _linear_carries(attrs: Attrs, group: tuple[int, ...]) -> Carried | None:
    return (-2, (-2,)) if group == (0,) else (-1, (-2,))


def _conv_carries(attrs: Attrs, group: tuple[int, ...]) -> Carried | None:
    features = 1 - _image(attrs)
    return (features, (features - 1, -1)) if group == (1, 2) else None


CONVOLUTIONS = (
    Op(
        "conv",
        Kind.OPAQUE,
        "torch.nn.functional.conv{places}d({0}, {1}, {2}, {strides}, {paddings}, {dilations},"
        " {groups})",
        convolution.conv,
        3,
        _WINDOW,
        multiplies=True,
        linear_in=((0, 2), (1, 2)),
        operands=("x[N,C,...]", "w[O,D,...]", "b[1,1,1,1,O?]"),
        carries=_conv_carries,
        operand_ranks=_convolution_ranks,
        as_torch_takes=partial(convolution.of_true_rank, transposed=False),
    ),
    Op(
        "conv_transpose",
        Kind.OPAQUE,
        "torch.nn.functional.conv_transpose{places}d({0}, {1}, {2}, {strides}, {paddings},"
        " {output_padding}, {groups}, {dilations})",
        convolution.conv_transpose,
        3,
        (*_WINDOW, "output_padding"),
        multiplies=True,
        linear_in=((0, 2), (1, 2)),
        operands=("x[N,C,...]", "w[C,D,...]", "b[1,1,1,1,F?]"),
        operand_ranks=_convolution_ranks,
        as_torch_takes=partial(convolution.of_true_rank, transposed=True),
    ),
)

# Of windows along the last axes: `paddings` and `dilations` for each axis, or one number for all.
POOLS = (
    Op(
        "image_pool",
        Kind.MOVE,
        "torch.nn.functional.avg_pool{places}d({0}, {sizes}, {strides}, {paddings}, {ceil_mode},"
        " {count_include_pad})",
        convolution.pooled,
        1,
        ("sizes", "strides", "paddings", "ceil_mode", "count_include_pad"),
        linear_in=((0,),),
        operands=("x[N,C,...]",),
        bounds=bounds.pool,
        passes_infinity=True,
        operand_ranks=_pool_ranks,
        as_torch_takes=partial(convolution.of_true_rank, transposed=False),
    ),
    Op(
        "max_pool",
        Kind.MOVE,
        "torch.nn.functional.max_pool{places}d({0}, {sizes}, {strides}, {paddings}, {dilations},"
        " {ceil_mode})",
        convolution.largest_pooled,
        1,
        ("sizes", "strides", "paddings", "dilations", "ceil_mode"),
        rounding=Rounding.NONE,
        selects=True,
        operands=("x[N,C,...]",),
        bounds=bounds.same,
        passes_infinity=True,
        operand_ranks=_pool_ranks,
        as_torch_takes=partial(convolution.of_true_rank, transposed=False),
    ),
)

ROWS = (
    # over the last axis of both: x[.., N, K], w[.., M, K] -> [.., N, M]
    Op(
        "linear",
        Kind.CONTRACT,
        "({0} @ {1}.mT)",
        shapes.linear,
        2,
        multiplies=True,
        linear_in=((0,), (1,)),
        operands=("x[N,K]", "w[M,K]"),
        carries=_linear_carries,
        reduction=Reduction("Sum"),  # of one feature: along the rows of x * w
    ),
    *CONVOLUTIONS,
    *POOLS,
)
