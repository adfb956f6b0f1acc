"""What becomes of the results of whole columns, in kernels of columns and of products."""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.body import Reduction, reduction_of, result_text
from refold.codegen.kernel import GroupKernel
from refold.codegen.names import Names


def finish_columns(
    kernel: GroupKernel, down: Sequence[Reduction], outer: str, before: str
) -> list[str]:
    """What becomes of the results of columns.

    outer: how `finalize_column` is given the slice, if it is; before: C++ of its offset.
    """
    group = kernel.group
    names = Names()
    slots = {n: names.unique(n.op) for r in down for n in r.nodes}
    lines = [f"struct Column {{ {kernel.real} {', '.join(slots.values())}; }};"]
    count = f"{kernel.real}(count)"
    for i, r in enumerate(down):
        compound = any(reduction_of(n).compound for n in r.nodes)
        state = f"{r.monoid}State" if compound else f"{r.monoid}::State"
        result = "s" if compound else "s.get()"
        texts = {n: result_text(n, r.monoid, result, count) for n in r.nodes}
        lines += kernel.function(
            f"RF_FN void set_column(Step<{i}>, Column& c, const {state}& s)",
            [f"c.{slots[n]} = {kernel.body.as_stored(n, t)};" for n, t in texts.items()],
        )
    puts = [
        f"put({kernel.member(n)}, {before}col, c.{slot});"
        for n, slot in slots.items()
        if n in group.outputs
    ]
    vectors = [n for n in group.column_results if n in group.outputs]
    known = {n: f"c.{slot}" for n, slot in slots.items()}
    room = min((84 - len(kernel.member(n)) for n in vectors), default=84)
    statements, found = kernel.body.statements(vectors, known, kernel.real, room=room, stored=True)
    puts += [*statements, *(f"put({kernel.member(n)}, col, {found[n]});" for n in vectors)]
    puts += [f"if (col == 0) *{member} += {by};" for member, by in kernel.counters()]
    head = f"RF_FN void finalize_column(const Column& c, {outer}long col)"
    return [*lines, *kernel.function(head, puts)]
