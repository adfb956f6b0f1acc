"""The text of kernels of channels: a functor with a step for each pass (cpu/channels.h,
cuda/channels.cuh)."""

from __future__ import annotations

import re

from refold.codegen.body import reductions
from refold.codegen.kernel import Form, GroupKernel
from refold.codegen.names import Names, wrapped
from refold.families.rows.kernel import all_read, follow, lanes_text, values_behind
from refold.families.rows.one_pass import waiting, with_squares
from refold.ir import Dim, Node, numel
from refold.plan.channels import of_places
from refold.plan.space import channels_of


def functor(kernel: GroupKernel, held: bool = False) -> list[str]:
    """held: whether each pass finds in registers what those before it have read. Rows then know
    their channel, and sums of exponentials how to be divided by."""
    body = kernel.body
    row = "R" if held else "long"

    def member(head: str, statements: list[str]) -> list[str]:
        """A function of the functor that is given a row and a column."""
        if not held:
            return kernel.function(f"template <class V, class C> {head}", statements)
        return ["template <class V, class R, class C>", *kernel.function(head, statements)]

    count = f"{kernel.real}({sizes(kernel)[1][1] if held else 'count'})"
    divided_by = divisors(kernel) if held else set()
    values = values_behind(kernel, _of_places(kernel))
    names = Names()
    fields = {n: names.unique(n.op) for n in [*kernel.reduced, *values]}
    known = {n: f"r.{field}" for n, field in fields.items()}
    plain = [field for n, field in fields.items() if n not in divided_by]
    members = [f"V {', '.join(plain)};"] if plain else []
    members += [f"SumOfExp<V> {fields[n]};" for n in fields if n in divided_by]
    lines = wrapped(f"template <class V> struct Reduced {{ {' '.join(members)} }};", "", "    ")
    lines.append(f"using Monoids = {kernel.monoids(kernel.reductions)};")
    terms: dict[Node, str] = {}  # what passes take of each element, for those after them
    read: dict[Node, set[Node]] = {}  # what is read for it
    kernel.passes.clear()
    for r in kernel.reductions:
        statements, texts = body.statements([r.source], known, given=terms)
        kernel.passes.append(all_read(body.last_read, read))
        lines += member(
            f"RF_FN V term(Step<{r.index}>, const Reduced<V>& r, {row} row, C col)",
            [*statements, f"return {lanes_text(texts[r.source], r.source)};"],
        )
        if r.source.inputs and not body.is_read(r.source):
            terms.setdefault(r.source, f"term<V>(Step<{r.index}>{{}}, r, row, col)")
            read[r.source] = kernel.passes[-1]
        setters = [f"r.{fields[n]} = {r.text(n, count)};" for n in r.nodes]
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
        kernel.passes.append(all_read(body.last_read, read))
        puts = [
            f"put({kernel.member(n)}, row * width, col, {lanes_text(texts[n], n)});" for n in full
        ]
        if not held and any(re.search(r"\bkept\b", line) for line in (*statements, *puts)):
            lines.append(f"static constexpr int kKept = {kernel.reductions[-1].index};")
        lines += member(
            f"RF_FN void store(const Reduced<V>& r, {row} row, C col, V kept)",
            [*statements, *puts],
        )
        if held and len(full) > 1:
            lines.append(f"static constexpr int kResults = {len(full)};")
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


def divisors(kernel: GroupKernel) -> set[Node]:
    """Sums of exponentials below a largest value, which nothing but these is divided by."""
    found = {
        n
        for first in kernel.reductions
        for second in kernel.reductions
        if (both := waiting(first, second)) is not None and both.monoid == "Softmax"
        for n in second.nodes
    }
    sources = {n: r.source for r in kernel.reductions for n in r.nodes}
    readers = [(n, i) for n in kernel.group.nodes for i in n.inputs if i in found]
    for n, i in readers:
        if n.op != "div" or n.inputs[0] is not sources[i]:
            found.discard(i)
    return found


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
