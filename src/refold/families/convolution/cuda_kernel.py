"""A convolution for CUDA as text: its window, its body, and the call of its kernel."""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.kernel import Form, GroupKernel
from refold.codegen.launch import Scope
from refold.ir import Dim, Node, numel
from refold.ir.literals import cpp_literal
from refold.plan import Group
from refold.plan.convolution import ConvolutionKernel

MODES = {"ieee": "Ieee", "tf32": "Tf32"}  # the C++ types of the kinds


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
    none = [(1, 1, 0, 1)] * (3 - places)
    facts = (w[-places:], conv["strides"], conv["paddings"], conv["dilations"])
    given = [*none, *zip(*facts, strict=True)]
    axes = [f"rf::WindowAxis<{', '.join(map(str, axis))}>" for axis in given]
    features = conv.shape[-places - 1]
    assert isinstance(features, int)
    return [
        f"using Window = rf::ConvolutionWindow<{places}, {axes[0]}, {axes[1]},",
        f"    {axes[2]}, {groups}, {w[-places - 1]}, {features // groups}>;",
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


class CudaConvolution(CudaKernel):
    """A convolution with its epilogue. plan: what is decided of it."""

    template = "convolution"

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)
        self.plan = planned(group, group.kernel, ConvolutionKernel)

    def headers(self) -> list[str]:
        return [self.plan.schedule.kernels.header]

    def run(self) -> str:
        schedule = self.plan.schedule.text(MODES[self.plan.kind])
        given = ", ".join(name for name, _ in self.sizes())
        return f"rf::convolution<{schedule}>(body, a, w, w_packed, {given}, {self.aligned()}, on)"

    def sides(self) -> tuple[list[tuple[str, str]], list[str]]:
        x, w = self.group.sides
        return [
            (self.pointer(x), "a"),
            (self.pointer(w), "w"),
            ("float*", "w_packed"),
        ], []

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        x, w = self.group.sides
        given: Sequence[str] = (scope.operands[x], scope.operands[w], scope.packed[w])
        return [], list(given)
