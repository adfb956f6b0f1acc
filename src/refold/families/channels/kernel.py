"""The text of kernels of channels: a functor with a step for each pass (cpu/channels.h,
cuda/channels.cuh)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from refold.codegen.body import Reduction, depends_on, reductions
from refold.codegen.kernel import Form, GroupKernel
from refold.codegen.names import Names, wrapped
from refold.families.rows.one_pass import with_squares
from refold.ir import OPS, Dim, Kind, Node, numel
from refold.plan.channels import of_places
from refold.plan.space import channels_of


def functor(kernel: GroupKernel) -> list[str]:
    body = kernel.body
    values = _values_of_places(kernel)
    names = Names()
    fields = {n: names.unique(n.op) for n in [*kernel.reduced, *values]}
    known = {n: f"p.{field}" for n, field in fields.items()}
    lines = wrapped(
        f"template <class V> struct Reduced {{ V {', '.join(fields.values())}; }};", "", "    "
    )
    lines.append(f"using Monoids = {kernel.monoids(kernel.reductions)};")
    terms: dict[Node, str] = {}  # what passes take of each element, for those after them
    for r in kernel.reductions:
        statements, texts = body.statements([r.source], known, given=terms)
        lines += kernel.function(
            f"template <class V, class C> RF_FN V term(Step<{r.index}>, const Reduced<V>& p,"
            " long row, C col)",
            [*statements, f"return {_lanes_text(texts[r.source], r.source)};"],
        )
        if r.source.inputs and not body.is_read(r.source):
            terms.setdefault(r.source, f"term<V>(Step<{r.index}>{{}}, p, row, col)")
        setters = [f"p.{fields[n]} = {r.text(n, f'{kernel.real}(count)')};" for n in r.nodes]
        setters += _follow(kernel, r, values, fields)
        kind = "const V" if r.second else "V"
        lines += kernel.function(
            f"template <class V> RF_FN void set(Step<{r.index}>, Reduced<V>& p, {kind} {r.takes})",
            setters,
        )
    full = kernel.full_outputs()
    if full:
        room = min(80 - len(kernel.member(n)) for n in full)
        last = kernel.reductions[-1].source
        given = terms | {last: "kept"} if last in terms else terms
        statements, texts = body.statements(full, known, given=given, room=room, stored=True)
        puts = [
            f"put({kernel.member(n)}, row * width, col, {_lanes_text(texts[n], n)});" for n in full
        ]
        if any(re.search(r"\bkept\b", line) for line in (*statements, *puts)):
            lines.append(f"static constexpr int kKept = {kernel.reductions[-1].index};")
        lines += kernel.function(
            "template <class V, class C> RF_FN void store(const Reduced<V>& p, long row, C col,"
            " V kept)",
            [*statements, *puts],
        )
    else:
        lines.append("static constexpr bool kStores = false;")
    places = _outputs_of_places(kernel)
    if places:
        lines.append("static constexpr bool kFinalizes = true;")
        room = min(84 - len(kernel.member(n)) for n in places)
        statements, texts = body.statements(places, known, room=room, stored=True)
        puts = [
            f"put({kernel.member(n)}, outer * width, col, {_lanes_text(texts[n], n)});"
            for n in places
        ]
        lines += kernel.function(
            "template <class V, class C> RF_FN void finalize(const Reduced<V>& p, long outer,"
            " C col)",
            [*statements, *puts],
        )
    return lines


def _follow(
    kernel: GroupKernel, r: Reduction, values: list[Node], fields: Mapping[Node, str]
) -> list[str]:
    """Statements that compute the values of a place that are complete once `r` is."""
    late = {n for q in kernel.reductions[r.index + 1 :] for n in q.nodes}
    lines: list[str] = []
    for k, n in enumerate(values):
        if not depends_on(n, set(r.nodes), kernel.inside) or depends_on(n, late, kernel.inside):
            continue
        known = {m: f"p.{fields[m]}" for m in (*kernel.reduced, *values[:k])}
        more, texts = kernel.body.statements([n], known)
        last = f"p.{fields[n]} = {_lanes_text(texts[n], n)};"
        lines += ["{", *(f"  {m}" for m in more), f"  {last}", "}"] if more else [last]
    return lines


def _lanes_text(text: str, node: Node) -> str:
    return f"lanes<V>({text})" if node.op == "scalar" else text


def _of_places(kernel: GroupKernel) -> tuple[Dim, ...]:
    axis = channels_of(kernel.group)
    assert axis is not None
    return of_places(kernel.group.dims, axis)


def _values_of_places(kernel: GroupKernel) -> list[Node]:
    """Pointwise values of one a place that follow from reductions."""
    reduced, shape = set(kernel.reduced), _of_places(kernel)
    return [
        n
        for n in kernel.group.nodes
        if n not in reduced
        and n.shape == shape
        and OPS[n.op].kind is Kind.POINTWISE
        and n.is_float
        and depends_on(n, reduced, kernel.inside)
    ]


def _outputs_of_places(kernel: GroupKernel) -> list[Node]:
    shape = _of_places(kernel)
    return [n for n in kernel.group.outputs if n.shape == shape]


def sizes(kernel: GroupKernel) -> list[tuple[str, Dim]]:
    axis, dims = channels_of(kernel.group), kernel.group.dims
    assert axis is not None
    return [
        ("outer", numel(dims[:axis])),
        ("count", dims[axis]),
        ("width", numel(dims[axis + 1 :])),
    ]


FORM = Form(
    functor,
    sizes,
    "ChannelsBody",
    filled=lambda kernel: "count",
    reductions=lambda group: with_squares(reductions(group)),
)
