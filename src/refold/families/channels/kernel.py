"""The text of kernels of channels: a functor with a step for each pass (cpu/channels.h,
cuda/channels.cuh)."""

from __future__ import annotations

import re

from refold.codegen.body import reductions
from refold.codegen.kernel import Form, GroupKernel
from refold.codegen.names import Names, wrapped
from refold.families.rows.kernel import follow, lanes_text, values_behind
from refold.families.rows.one_pass import with_squares
from refold.ir import Dim, Node, numel
from refold.plan.channels import of_places
from refold.plan.space import channels_of


def functor(kernel: GroupKernel) -> list[str]:
    body = kernel.body
    values = values_behind(kernel, _of_places(kernel))
    names = Names()
    fields = {n: names.unique(n.op) for n in [*kernel.reduced, *values]}
    known = {n: f"r.{field}" for n, field in fields.items()}
    lines = wrapped(
        f"template <class V> struct Reduced {{ V {', '.join(fields.values())}; }};", "", "    "
    )
    lines.append(f"using Monoids = {kernel.monoids(kernel.reductions)};")
    terms: dict[Node, str] = {}  # what passes take of each element, for those after them
    for r in kernel.reductions:
        statements, texts = body.statements([r.source], known, given=terms)
        lines += kernel.function(
            f"template <class V, class C> RF_FN V term(Step<{r.index}>, const Reduced<V>& r,"
            " long row, C col)",
            [*statements, f"return {lanes_text(texts[r.source], r.source)};"],
        )
        if r.source.inputs and not body.is_read(r.source):
            terms.setdefault(r.source, f"term<V>(Step<{r.index}>{{}}, r, row, col)")
        setters = [f"r.{fields[n]} = {r.text(n, f'{kernel.real}(count)')};" for n in r.nodes]
        setters += follow(kernel, r, values, fields, "V")
        kind = "const V" if r.second else "V"
        lines += kernel.function(
            f"template <class V> RF_FN void set(Step<{r.index}>, Reduced<V>& r, {kind} {r.takes})",
            setters,
        )
    full = kernel.full_outputs()
    if full:
        room = min(80 - len(kernel.member(n)) for n in full)
        last = kernel.reductions[-1].source
        given = terms | {last: "kept"} if last in terms else terms
        statements, texts = body.statements(full, known, given=given, room=room, stored=True)
        puts = [
            f"put({kernel.member(n)}, row * width, col, {lanes_text(texts[n], n)});" for n in full
        ]
        if any(re.search(r"\bkept\b", line) for line in (*statements, *puts)):
            lines.append(f"static constexpr int kKept = {kernel.reductions[-1].index};")
        lines += kernel.function(
            "template <class V, class C> RF_FN void store(const Reduced<V>& r, long row, C col,"
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
            f"put({kernel.member(n)}, outer * width, col, {lanes_text(texts[n], n)});"
            for n in places
        ]
        lines += kernel.function(
            "template <class V, class C> RF_FN void finalize(const Reduced<V>& r, long outer,"
            " C col)",
            [*statements, *puts],
        )
    return lines


def _of_places(kernel: GroupKernel) -> tuple[Dim, ...]:
    axis = channels_of(kernel.group)
    assert axis is not None
    return of_places(kernel.group.dims, axis)


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
