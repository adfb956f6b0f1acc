"""The text of kernels of pooling (cpu/pooling.h, cuda/pooling.cuh).

A kernel reads in one space and writes in another: the functor's `term` computes an element of the
image at (row, col) of the image, `store` what follows from a window at (row, col) of the result.
"""

from __future__ import annotations

from dataclasses import replace

from refold.codegen.body import Body, Operand
from refold.codegen.kernel import Form, GroupKernel
from refold.families.pooling.windows import pool_of, takes_largest, windows_of
from refold.ir import Dim, Node, numel
from refold.ir.convolution import Window

_AXES = ("Depth", "Height", "Width")


class _OfResult(Body):
    """Writes values in the space of the result, whose rows are of another width."""

    def load(self, operand: Operand, lanes: str) -> str:
        if operand.kind == "full":
            return f"full<{lanes}>({operand.member}, row * Width::kMade, col)"
        return super().load(operand, lanes)


def functor(kernel: GroupKernel) -> list[str]:
    pool = pool_of(kernel.group.nodes)
    laid = windows_of(pool)
    laid = (*(Window(1, 1),) * (len(_AXES) - len(laid)), *laid)
    kind = "LargestOf" if takes_largest(pool) else f"MeanOf<{_counts_padding(pool)}>"
    lines = [f"using Pool = {kind};"]
    lines += [
        f"using {axis} = Window<{w.given}, {w.made}, {w.size}, {w.step}, {w.padding}, {w.apart}>;"
        for axis, w in zip(_AXES, laid, strict=True)
    ]
    (x,) = pool.inputs
    statements, texts = kernel.body.statements([x], {})
    lines += kernel.function(
        "template <class V, class C> RF_FN V term(long row, C col)",
        [*statements, f"return {texts[x]};"],
    )
    read = kernel.body.by_node.get(x)
    if read is not None and read.kind == "full" and kernel.body.element(x) == kernel.real:
        lines.append(f"RF_FN const {kernel.real}* lies_at() const {{ return {read.member}; }}")
    return lines + _store(kernel)


def _counts_padding(pool: Node) -> str:
    return str(bool(pool["count_include_pad"])).lower()


def _store(kernel: GroupKernel) -> list[str]:
    """What becomes of a window, in the space of the result."""
    pool, group = pool_of(kernel.group.nodes), kernel.group
    body = _OfResult(replace(group, dims=pool.shape))
    body.rename({o.node: o.member for o in kernel.body.operands})
    body.taken = kernel.body.taken
    outputs = list(group.outputs)
    room = min(80 - len(kernel.member(n)) for n in outputs)
    value = body.as_stored(pool, "value")
    statements, texts = body.statements(outputs, {pool: value}, room=room, stored=True)
    puts = [f"put({kernel.member(n)}, row * Width::kMade, col, {texts[n]});" for n in outputs]
    head = "template <class V, class C> RF_FN void store(V value, long row, C col)"
    return kernel.function(head, [*statements, *puts])


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    pool = pool_of(kernel.group.nodes)
    planes = numel(pool.inputs[0].shape[: -len(windows_of(pool))])
    return [("planes", planes), ("width", kernel.group.width)]


FORM = Form(functor, sizes, "PoolingBody")
