"""The text of kernels of rows: a functor with a step for each pass (cpu/rows.h, cuda/rows.cuh)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from refold.codegen.body import Reduction, depends_on, reductions
from refold.codegen.expression import ATOM
from refold.codegen.expression import known as text_of
from refold.codegen.kernel import Form, GroupKernel
from refold.codegen.names import Names, wrapped
from refold.families.rows.one_pass import with_squares
from refold.ir import OPS, Dim, Kind, Node, numel

_FIELDS = {"linear": "product"}  # what a row's value of an op is called, if not as the op


def functor(kernel: GroupKernel) -> list[str]:
    body, real = kernel.body, kernel.real
    row_values = values_behind(kernel, body.row_shape)
    names = Names()
    fields = {n: names.unique(_FIELDS.get(n.op, n.op)) for n in [*kernel.reduced, *row_values]}
    known = {n: f"lanes<V>(r.{field})" for n, field in fields.items()}
    row = f"struct Row {{ {real} {', '.join(fields.values())}; }};"
    lines = wrapped(row, "", "    ") if fields else []
    if kernel.reductions:
        lines.append(f"using Monoids = {kernel.monoids(kernel.reductions)};")
    count = f"{real}(width)"
    terms: dict[Node, str] = {}  # what passes take of each element, for those after them
    read: dict[Node, set[Node]] = {}  # what is read for it
    kernel.passes.clear()
    for r in kernel.reductions:
        source = r.source
        if source in r.nodes:  # a product of one output feature
            at_hand = {n: t for n, t in known.items() if n is not source}
            statements, texts = body.statements(source.inputs, at_hand, given=terms, room=40)
            text = " * ".join(text_of(texts[i]).at_least(ATOM) for i in source.inputs)
        else:
            statements, texts = body.statements([source], known, given=terms)
            text = texts[source]
        kernel.passes.append(all_read(body.last_read, read))
        lines += kernel.function(
            f"template <class V, class C> RF_FN V term(Step<{r.index}>, const Row& r, long row,"
            " C col)",
            [*statements, f"return {lanes_text(text, source)};"],
        )
        if source not in r.nodes and source.inputs and not body.is_read(source):
            terms.setdefault(source, f"term<V>(Step<{r.index}>{{}}, r, row, col)")
            read[source] = kernel.passes[-1]
        setters = [f"r.{fields[n]} = {r.text(n, count)};" for n in r.nodes]
        setters += follow(kernel, r, row_values, fields, kernel.real)
        kind = f"const {real}" if r.second else real
        lines += kernel.function(
            f"RF_FN void set(Step<{r.index}>, Row& r, long row, {kind} {r.takes})", setters
        )
    full = kernel.full_outputs()
    if full:
        room = min(80 - len(kernel.member(n)) for n in full)
        statements, texts = body.statements(full, known, given=terms, room=room, stored=True)
        kernel.passes.append(all_read(body.last_read, read))
        puts = [
            f"put({kernel.member(n)}, row * width, col, {lanes_text(texts[n], n)});" for n in full
        ]
        lines += kernel.function(
            "template <class V, class C> RF_FN void store(const Row& r, long row, C col)",
            [*statements, *puts],
        )
    else:
        lines.append("static constexpr bool kStores = false;")
    rows = kernel.row_outputs()
    if rows:
        lines.append("static constexpr bool kFinalizes = true;")
        scalars = {n: f"r.{field}" for n, field in fields.items()}
        room = min(84 - len(kernel.member(n)) for n in rows)
        statements, texts = body.statements(rows, scalars, real, room=room, stored=True)
        lines += kernel.function(
            "RF_FN void finalize(const Row& r, long row)",
            [*statements, *(f"put({kernel.member(n)}, row, {texts[n]});" for n in rows)],
        )
    return lines


def all_read(nodes: Iterable[Node], read: Mapping[Node, set[Node]]) -> set[Node]:
    """What is read for `nodes`, some of which are what passes take."""
    return set().union(*(read.get(n, {n}) for n in nodes))


def follow(
    kernel: GroupKernel,
    r: Reduction,
    values: Sequence[Node],
    fields: Mapping[Node, str],
    lanes: str,
) -> list[str]:
    """Statements that compute what is known of a row, or of places, once `r` is complete. lanes:
    the C++ type of its fields."""
    late = {n for q in kernel.reductions[r.index + 1 :] for n in q.nodes}
    lines: list[str] = []
    for k, n in enumerate(values):
        if not depends_on(n, set(r.nodes), kernel.inside) or depends_on(n, late, kernel.inside):
            continue
        known = {m: f"r.{fields[m]}" for m in fields if m in kernel.reduced}
        known |= {m: f"r.{fields[m]}" for m in values[:k]}
        more, texts = kernel.body.statements([n], known, lanes)
        last = f"r.{fields[n]} = {texts[n]};"
        lines += ["{", *(f"  {m}" for m in more), f"  {last}", "}"] if more else [last]
    return lines


def lanes_text(text: str, node: Node) -> str:
    return f"lanes<V>({text})" if node.op == "scalar" else text


def values_behind(kernel: GroupKernel, shape: Sequence[Dim]) -> list[Node]:
    """Pointwise values of a shape, one a row or a place, that follow from reductions."""
    reduced = set(kernel.reduced)
    return [
        n
        for n in kernel.group.nodes
        if n not in reduced
        and n.shape == shape
        and not kernel.is_full(n)
        and OPS[n.op].kind is Kind.POINTWISE
        and n.is_float
        and depends_on(n, reduced, kernel.inside)
    ]


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    return [("rows", numel(kernel.body.dims[:-1])), ("width", kernel.body.dims[-1])]


BASE = "RowsBody"
FORM = Form(functor, sizes, BASE, reductions=lambda group: with_squares(reductions(group)))
