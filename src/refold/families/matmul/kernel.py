"""The text of kernels of products: the value of an element, and what it is reduced to."""

from __future__ import annotations

from refold.codegen.body import Reduction, result_text
from refold.codegen.kernel import Form, GroupKernel
from refold.families.column_results import finish_columns
from refold.ir import Dim


def _operand_text(text: str) -> str:
    """C++ that may be an operand of any other."""
    return f"({text})" if " " in text else text


def reductions_down(kernel: GroupKernel) -> list[Reduction]:
    """A product's reductions of its columns; its others are of its rows."""
    return [r for r in kernel.reductions if r.nodes[0]["axes"] != (-1,)]


def functor(kernel: GroupKernel) -> list[str]:
    group = kernel.group
    down = reductions_down(kernel)
    along = [r for r in kernel.reductions if r not in down]
    value = group.value
    known = {group.product: kernel.body.as_stored(group.product, "acc")}
    lines = []
    if value is not group.product or known[value] != "acc":
        read = [o for o in kernel.body.pointers() if o.kind in ("full", "mixed")]
        statements, texts = kernel.body.statements([value], known, in_order=len(read) > 1)
        lines += kernel.function(
            "template <class V, class C> RF_FN V value(V acc, long row, C col)",
            [*statements, f"return {texts[value]};"],
        )
    if kernel.full_outputs():
        lines += kernel.function(
            "template <class C> RF_FN void store(long row, C col, Vec v)",
            [f"put({kernel.member(value)}, row * width, col, v);"],
        )
    else:
        lines.append("static constexpr bool kStores = false;")
    known = {
        n: _operand_text(result_text(n, r.monoid, f"results[{i}]", f"{kernel.real}(width)"))
        for i, r in enumerate(along)
        for n in r.nodes
    }
    rows = kernel.row_outputs()
    room = min((84 - len(kernel.member(n)) for n in rows), default=84)
    statements, texts = kernel.body.statements(rows, known, kernel.real, room=room, stored=True)
    if along:
        lines.append(f"using RowMonoids = {kernel.monoids(along)};")
        lines += kernel.function(
            f"RF_FN void finalize_row(long row, const {kernel.real}* results)",
            [*statements, *(f"put({kernel.member(n)}, row, {texts[n]});" for n in rows)],
        )
    if down:
        lines.append(f"using ColumnMonoids = {kernel.monoids(down)};")
        lines += finish_columns(kernel, down, "", "")
    return lines


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    depth = kernel.group.product.inputs[0].shape[-1]
    return [("rows", kernel.group.rows), ("width", kernel.group.width), ("depth", depth)]


FORM = Form(
    functor,
    sizes,
    base="MatmulBody",
    filled=lambda kernel: "rows" if reductions_down(kernel) else None,
)
