"""The text of kernels of convolutions: their window, and what becomes of an element."""

from __future__ import annotations

from refold.codegen.kernel import Form, GroupKernel
from refold.ir import Dim, Node, numel
from refold.ir.literals import cpp_literal


def functor(kernel: GroupKernel) -> list[str]:
    """The value of an element from the convolution's, and where it is stored."""
    group = kernel.group
    conv, value = group.product, group.value
    lines = [*_window(conv)]
    bias = next((o for o in kernel.body.operands if o.node is conv.inputs[2]), None)
    first = []
    if bias is not None:
        first = [f"acc = acc + {kernel.body.load(bias, 'V')};"]
    elif conv.inputs[2]["value"] != 0:  # NaN, too
        first = [f"acc = acc + lanes<V>({cpp_literal(conv.inputs[2]['value'])});"]
    if value is not conv or first:
        statements, texts = kernel.body.statements([value], {conv: "acc"})
        lines += kernel.function(
            "template <class V, class C> RF_FN V value(V acc, long row, long channel, C col)",
            [*first, *statements, f"return {texts[value]};"],
        )
    lines += kernel.function(
        "template <class V, class C> RF_FN void store(long row, C col, V v)",
        [f"put({kernel.member(value)}, row * width, col, v);"],
    )
    return lines


def _window(conv: Node) -> list[str]:
    places, groups = len(conv["strides"]), conv["groups"]
    w = conv.inputs[1].shape
    transposed = conv.op == "conv_transpose"
    facts = [w[-places:], conv["strides"], conv["paddings"], conv["dilations"]]
    none: tuple[Dim, ...] = (1, 1, 0, 1)
    if transposed:
        facts.append(conv["output_padding"])
        none = (*none, 0)
    given = [*(none,) * (3 - places), *zip(*facts, strict=True)]
    axes = [f"rf::WindowAxis<{', '.join(map(str, axis))}>" for axis in given]
    features, channels = conv.shape[-places - 1], conv.inputs[0].shape[-places - 1]
    assert isinstance(features, int) and isinstance(channels, int)
    return [
        f"using Window = rf::{'Transposed' if transposed else 'Convolution'}Window<{places},"
        f" {axes[0]}, {axes[1]},",
        f"    {axes[2]}, {groups}, {channels // groups}, {features // groups}>;",
    ]


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    conv = kernel.group.product
    places = len(conv["strides"])
    image: list[Dim] = [*(1 for _ in range(3 - places)), *conv.inputs[0].shape[-places:]]
    names = ("image_deep", "image_high", "image_wide")
    return [
        ("count", conv.shape[-places - 2]),
        *zip(names, image, strict=True),
        ("width", numel(conv.shape[-places:])),
    ]


FORM = Form(functor, sizes, base="ConvolutionBody")
