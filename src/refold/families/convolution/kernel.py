"""The text of kernels of convolutions: their window, and what becomes of an element."""

from __future__ import annotations

from dataclasses import replace

from refold.codegen.body import Body, Operand, Reduction
from refold.codegen.kernel import Form, GroupKernel
from refold.convolve import PATCHES
from refold.families.convolution.channels_kernel import element, passes
from refold.families.pooling.windows import is_pool, takes_largest, windows_of
from refold.ir import Dim, Node, numel
from refold.ir.literals import cpp_literal
from refold.plan import Group
from refold.plan.convolution import ConvolutionKernel, is_statistic

# Arithmetic of an element, in multiply-adds. A kernel that unrolls 64 elements with more waits for
# its instructions: mish and tanh took 1335 us so, and 1109 a few elements at a time.
_LONG = 24


def is_long(group: Group) -> bool:
    """Whether what follows on an element is more than a kernel should unroll."""
    return sum(n.row.flops.plain for n in group.nodes if n is not group.product) > _LONG


def functor(kernel: GroupKernel) -> list[str]:
    """The value of an element from the convolution's, and where it is stored."""
    group = kernel.group
    conv = group.product
    statistics = [n for n in group.reductions if is_statistic(n, conv)]
    by_passes = _by_patches(group) and len(statistics) < len(group.reductions)
    value = element(kernel) if by_passes else group.value
    lines = [*_window(conv), *_layout(group)]
    bias = next((o for o in kernel.body.operands if o.node is conv.inputs[2]), None)
    first = []
    if bias is not None:
        first = [f"acc = acc + {kernel.body.load(bias, 'V')};"]
    elif conv.inputs[2]["value"] != 0:  # NaN, too
        first = [f"acc = acc + lanes<V>({cpp_literal(conv.inputs[2]['value'])});"]
    if is_long(group):
        lines.append("static constexpr bool kLong = true;")
    if value is not conv or first:
        statements, texts = kernel.body.statements([value], {conv: "acc"})
        lines += kernel.function(
            "template <class V, class C> RF_FN V value(V acc, long row, long channel, C col)",
            [*first, *statements, f"return {texts[value]};"],
        )
    pool = next(filter(is_pool, group.nodes), None)
    offset = "row * width"
    if pool is not None:
        lines += _pool(kernel, pool)
        offset = f"row * {_POOLED}"
    if by_passes:
        lines += passes(kernel, value)
    elif statistics:
        lines += _statistics(kernel, statistics)
    else:
        for reduction in kernel.reductions:
            lines += _over_channels(kernel, reduction)
    for made in group.outputs:
        if made not in statistics:
            lines += kernel.function(
                "template <class V, class C> RF_FN void store(long row, C col, V v)",
                [f"put({kernel.member(made)}, {offset}, col, v);"],
            )
    decided = group.kernel
    if isinstance(decided, ConvolutionKernel) and decided.by_sectors:
        (made,) = group.outputs
        row = [f"return {kernel.member(made)} + {offset};"]
        lines += ["static constexpr bool kBySectors = true;"]
        lines += kernel.function("RF_FN float* row_of_result(long row)", row)
    return lines


def _layout(group: Group) -> list[str]:
    """Which images lie with their channels last."""
    last = group.channels_last
    facts = {
        "kAddressed": group.images > 0,
        "kGivenLast": group.sides[0] in last,
        "kMakesLast": group.last,
    }
    said = ", ".join(f"{name} = true" for name, so in facts.items() if so)
    return [f"static constexpr bool {said};"] if said else []


def _by_patches(group: Group) -> bool:
    return isinstance(group.kernel, ConvolutionKernel) and group.kernel.schedule.kernels is PATCHES


_POOLED = "kPooledHigh * kPooledWide"


class _OfPooled(Body):
    """Writes values in the space of what is pooled, whose rows are of another width."""

    def load(self, operand: Operand, lanes: str) -> str:
        if operand.kind == "full":
            return f"full<{lanes}>({operand.member}, row * {_POOLED}, col)"
        return super().load(operand, lanes)


def _pool(kernel: GroupKernel, pool: Node) -> list[str]:
    """Windows of the result, next to each other, how many there are, and what follows on each."""
    high, wide = windows_of(pool)
    lines = [
        f"static constexpr int kPoolHigh = {high.size}, kPoolWide = {wide.size};",
        f"static constexpr int kPooledHigh = {high.made}, kPooledWide = {wide.made};",
        f"static constexpr bool kLargest = {str(takes_largest(pool)).lower()};",
    ]
    (made,) = kernel.group.outputs
    if made is pool:
        return lines
    head = "template <class V, class C> RF_FN V pooled(V acc, long row, long channel, C col)"
    body = _OfPooled(replace(kernel.group, dims=pool.shape))
    return lines + kernel.function(head, _behind(kernel, body, pool, "acc"))


def _over_channels(kernel: GroupKernel, reduction: Reduction) -> list[str]:
    """By what a place's channels are reduced, and what follows on the result."""
    (reduced,) = reduction.nodes
    count = cpp_literal(float(str(reduced.inputs[0].shape[reduced["axes"][0]])))
    result = reduction.text(reduced, count).replace("value", "acc")
    lines = [f"return {result};"]
    if kernel.group.outputs != (reduced,):
        lines = _behind(kernel, Body(replace(kernel.group, dims=reduced.shape)), reduced, result)
    head = "template <class V, class C> RF_FN V of_channels(V acc, long row, C col)"
    return [f"using OverChannels = rf::{reduction.monoid};", *kernel.function(head, lines)]


def _statistics(kernel: GroupKernel, nodes: list[Node]) -> list[str]:
    """What becomes of the mean and the squared deviations of a channel of an image."""
    stored = any(n not in nodes for n in kernel.group.outputs)
    texts = {"mean": "s.whole_mean()", "var": "s.variance()"}
    puts = [f"put({kernel.member(n)}, channel, {texts[n.op]});" for n in nodes]
    return [
        "static constexpr bool kStatistics = true;",
        *(["static constexpr bool kSpread = true;"] if any(n.op == "var" for n in nodes) else []),
        *([] if stored else ["static constexpr bool kStoresValues = false;"]),
        *kernel.function(
            "RF_FN void set_statistics(long channel, const rf::PlaceStatistics& s)", puts
        ),
    ]


def _behind(kernel: GroupKernel, body: Body, smaller: Node, text: str) -> list[str]:
    """Statements of what follows on a value of fewer places or channels, by the body of its space.
    text: C++ of it."""
    (made,) = kernel.group.outputs
    body.rename({o.node: o.member for o in kernel.body.operands})
    body.taken = kernel.body.taken
    statements, texts = body.statements([made], {smaller: text})
    return [*statements, f"return {texts[made]};"]


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
    found = [("count", conv.shape[-places - 2]), *zip(names, image, strict=True)]
    made = numel(conv.shape[-places:])
    if kernel.group.last:  # a row is what the channels of a place are
        return [*found, ("places", made), ("width", conv.shape[-places - 1])]
    return [*found, ("width", made)]


FORM = Form(functor, sizes, base="ConvolutionBody")
