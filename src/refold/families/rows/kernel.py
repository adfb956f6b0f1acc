"""The text of kernels of rows: a functor with a step for each pass (cpu/rows.h, cuda/rows.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from refold.codegen.body import Reduction, depends_on
from refold.codegen.kernel import Form, GroupKernel
from refold.ir import OPS, Dim, Kind, Node, numel


def functor(kernel: GroupKernel) -> list[str]:
    row_values = _row_values(kernel)
    slots = {n: f"r{i}" for i, n in enumerate([*kernel.reduced, *row_values])}
    fields = ", ".join(slots.values())
    known = {n: f"lanes<V>(r.{slot})" for n, slot in slots.items()}
    lines = [f"struct Row {{ {f'{kernel.real} {fields}; ' if fields else ''}}};"]
    lines.append(f"using Monoids = {kernel.monoids(kernel.reductions)};")
    count = f"static_cast<{kernel.real}>(width)"
    for r in kernel.reductions:
        source = r.source
        own_product = source in r.nodes  # a product of one output feature
        at_hand = {n: t for n, t in known.items() if not (own_product and n is source)}
        if own_product:
            statements, texts = kernel.body.statements(source.inputs, at_hand)
            x, w = (texts[i] for i in source.inputs)
            text = f"{x} * {w}"
        else:
            statements, texts = kernel.body.statements([source], known)
            text = texts[source]
        lines += kernel.function(
            f"template <class V, class C> RF_FN V term(Step<{r.index}>, const Row& r, long row,"
            " C col)",
            [*statements, f"return {_lanes_text(text, source)};"],
        )
        setters = [f"r.{slots[n]} = {r.text(n, count)};" for n in r.nodes]
        setters += _follow(kernel, r, row_values, slots)
        kind = f"const {kernel.real}" if r.second else kernel.real
        lines += kernel.function(
            f"RF_FN void set(Step<{r.index}>, Row& r, long row, {kind} {r.takes})", setters
        )
    full = kernel.full_outputs()
    lines.append(f"static constexpr bool kStores = {str(bool(full)).lower()};")
    if full:
        statements, texts = kernel.body.statements(full, known)
        puts = [
            f"put({kernel.member(n)}, row * width, col, {_lanes_text(texts[n], n)});" for n in full
        ]
        lines += kernel.function(
            "template <class V, class C> RF_FN void store(const Row& r, long row, C col)",
            [*statements, *puts],
        )
    rows = kernel.row_outputs()
    lines.append(f"static constexpr bool kFinalizes = {str(bool(rows)).lower()};")
    if rows:
        scalars = {n: f"r.{slot}" for n, slot in slots.items()}
        statements, texts = kernel.body.statements(rows, scalars, kernel.body.real)
        lines += kernel.function(
            "RF_FN void finalize(const Row& r, long row)",
            [*statements, *(f"put({kernel.member(n)}, row, {texts[n]});" for n in rows)],
        )
    return lines


def _follow(
    kernel: GroupKernel, r: Reduction, row_values: Sequence[Node], slots: Mapping[Node, str]
) -> list[str]:
    """Statements that compute the row's values that are complete once `r` is."""
    late = {n for q in kernel.reductions[r.index + 1 :] for n in q.nodes}
    lines: list[str] = []
    for k, n in enumerate(row_values):
        if not depends_on(n, set(r.nodes), kernel.inside) or depends_on(n, late, kernel.inside):
            continue
        known = {m: f"r.{slots[m]}" for m in slots if m in kernel.reduced}
        known |= {m: f"r.{slots[m]}" for m in row_values[:k]}
        more, texts = kernel.body.statements([n], known, kernel.body.real)
        lines += ["{", *(f"  {m}" for m in more), f"  r.{slots[n]} = {texts[n]};", "}"]
    return lines


def _lanes_text(text: str, node: Node) -> str:
    return f"lanes<V>({text})" if node.op == "scalar" else text


def _row_values(kernel: GroupKernel) -> list[Node]:
    """Pointwise values of one per row that follow from reductions."""
    reduced = set(kernel.reduced)
    return [
        n
        for n in kernel.group.nodes
        if n not in reduced
        and n.shape == kernel.body.row_shape
        and not kernel.is_full(n)
        and OPS[n.op].kind is Kind.POINTWISE
        and n.is_float
        and depends_on(n, reduced, kernel.inside)
    ]


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    return [("rows", numel(kernel.body.dims[:-1])), ("width", kernel.body.dims[-1])]


FORM = Form(functor, sizes)
