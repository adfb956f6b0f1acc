"""The text of passes over the channels of each place in a kernel of a convolution."""

from __future__ import annotations

import re
from dataclasses import replace

from refold.codegen.body import Body, depends_on
from refold.codegen.kernel import GroupKernel
from refold.codegen.names import Names, wrapped
from refold.families.channels.kernel import divisors
from refold.families.rows.kernel import follow, lanes_text, values_behind
from refold.ir import Node
from refold.ir.literals import cpp_literal
from refold.plan.plan import is_rematerialized

_POSITION = "long row, long channel, C col"


def element(kernel: GroupKernel) -> Node:
    """The value of each element that passes start from: what they need of the convolution is
    computed by way of it."""
    group = kernel.group
    reduced = set(group.reductions)
    before = [n for n in group.nodes if not depends_on(n, reduced, kernel.inside)]
    full = [n for n in before if n.shape == group.dims and not is_rematerialized(n)]
    for value in reversed(full):
        needed = _needed(value, kernel)
        rest = (n for n in group.nodes if n is not value and n not in needed)
        if not any(i in needed for n in rest for i in n.inputs if not is_rematerialized(i)):
            return value
    return group.product


def _needed(value: Node, kernel: GroupKernel) -> set[Node]:
    """What a value is computed from inside the group, but for what is computed wherever it is
    read."""
    found: set[Node] = set()
    stack = list(value.inputs)
    while stack:
        n = stack.pop()
        if n in kernel.inside and n not in found:
            found.add(n)
            stack += n.inputs
    return {n for n in found if not is_rematerialized(n)}


def _of_place(
    kernel: GroupKernel, made: Node, known: dict[Node, str]
) -> tuple[list[str], dict[Node, str]]:
    """Statements that compute a value of one number a place, in a body of its space."""
    body = Body(replace(kernel.group, dims=made.shape))
    body.rename({o.node: o.member for o in kernel.body.operands})
    body.taken = kernel.body.taken
    return body.statements([made], known)


def passes(kernel: GroupKernel, start: Node) -> list[str]:
    """A step for each pass, as bodies of channels have them, and what becomes of an element or of a
    place. start: what passes find of each element."""
    group, body = kernel.group, kernel.body
    (made,) = group.outputs
    by_place = made.shape != group.dims
    sources = {r.source for r in kernel.reductions}
    places = (kernel.reductions[0].nodes[0]).shape
    needed = sources | (set() if by_place else {made})
    between = [
        n
        for n in values_behind(kernel, places)
        if any(depends_on(m, {n}, kernel.inside) for m in needed)
    ]
    names, divided_by = Names(), divisors(kernel)
    fields = {n: names.unique(n.op) for n in [*kernel.reduced, *between]}
    known = {n: f"r.{field}" for n, field in fields.items()}
    plain = [field for n, field in fields.items() if n not in divided_by]
    members = [f"V {', '.join(plain)};"] if plain else []
    members += [f"SumOfExp<V> {fields[n]};" for n in fields if n in divided_by]
    lines = wrapped(f"template <class V> struct Reduced {{ {' '.join(members)} }};", "", "    ")
    lines.append(f"using OverChannels = {kernel.monoids(kernel.reductions)};")
    axis = next(a for a in range(-len(places), 0) if places[a] != group.dims[a])
    count = cpp_literal(float(str(group.dims[axis])))
    for r in kernel.reductions:
        statements, texts = body.statements([r.source], known | {start: "acc"})
        lines += _member(
            kernel,
            f"V term(Step<{r.index}>, const Reduced<V>& r, V acc, {_POSITION})",
            [*statements, f"return {lanes_text(texts[r.source], r.source)};"],
        )
        setters = [f"r.{fields[n]} = {r.text(n, count)};" for n in r.nodes]
        setters += follow(kernel, r, between, fields, "V")
        lines += kernel.function(
            f"template <class V> RF_FN void set(Step<{r.index}>, Reduced<V>& r, V {r.takes})",
            setters,
        )
    if by_place:
        statements, texts = ([], known) if made in known else _of_place(kernel, made, known)
        return [
            *lines,
            "static constexpr bool kStoresValues = false;",
            *_member(
                kernel,
                "V of_place(const Reduced<V>& r, long row, C col)",
                [*statements, f"return {texts[made]};"],
            ),
        ]
    last = kernel.reductions[-1].source
    statements, texts = body.statements([made], known | {last: "kept", start: "acc"})
    if last is start or any(re.search(r"\bacc\b", t) for t in (*statements, texts[made])):
        statements, texts = body.statements([made], known | {start: "kept"})
    else:
        lines.append("static constexpr bool kKeepsTerms = true;")
    return lines + _member(
        kernel,
        f"V of_element(const Reduced<V>& r, V kept, {_POSITION})",
        [*statements, f"return {texts[made]};"],
    )


def _member(kernel: GroupKernel, head: str, statements: list[str]) -> list[str]:
    """A function of the functor that is given a place."""
    return ["template <class V, class C>", *kernel.function(f"RF_FN {head}", statements)]
