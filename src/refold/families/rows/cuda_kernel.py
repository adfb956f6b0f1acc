"""Kernels of rows for CUDA (cuda/rows.cuh)."""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.cuda import CudaKernel
from refold.codegen.kernel import Form
from refold.codegen.launch import Scope
from refold.families.rows.kernel import FORM
from refold.families.rows.one_pass import one_pass
from refold.ir import Node, Sym, hint
from refold.plan import Group

# Columns of a row that a block holds in registers (row_cut.cuh, Holds): in fours, and one by one.
_HELD, _HELD_SINGLY = 8192, 4096
# Narrower rows are never taken by several blocks (row_cut.cuh, kSplitFrom).
_SPLIT_FROM = 65536


class RowsKernel(CudaKernel):
    """Passes over rows. form: that of the family; pointwise kernels have no pass."""

    template = "rows"

    def __init__(self, group: Group, name: str, form: Form = FORM) -> None:
        super().__init__(group, name, form)
        width = hint(group.width)
        if width > (_HELD_SINGLY if width % 4 else _HELD):
            self.reductions = one_pass(self.reductions)
            self.reduced = {n: r for r in self.reductions for n in r.nodes}

    def headers(self) -> list[str]:
        return [*super().headers(), *(["quantized_rows.cuh"] if self.group.quantized else [])]

    def functor(self) -> list[str]:
        lines = [*super().functor(), f"static constexpr int kBlocks = {self._blocks()};"]
        if not self.full_outputs():
            return lines
        start = next(i for i, line in enumerate(lines) if " store(" in line)
        reads = [
            f"{self.body.load(o, 'V')};"
            for o in self.body.pointers()
            if self.body.is_along_width(o) and any(f"({o.member}," in x for x in lines[start:])
        ]
        head = "template <class V, class C> RF_FN void read(long row, C col)"
        return [*lines, *self.function(head, reads)]

    def _blocks(self) -> int:
        """Blocks that hold rows on a multiprocessor: as many as registers suffice for.

        While one waits for its rows the others compute. A thread of two has 64 registers, and its
        part of a row takes 16.
        """
        slow = any(n.row.flops.slow_path for n in self.group.nodes)
        return 1 if slow or self.real == "double" or self._kept() > 1 else 2

    def _kept(self) -> int:
        """How many values of an element a thread keeps from one pass for later ones, at most."""
        passes = [self._needed([r.source]) for r in self.reductions]
        passes.append(self._needed(self.full_outputs()))
        most = 0
        for k in range(1, len(passes)):
            before = {n for needed in passes[:k] for n in needed}
            later = {n for needed in passes[k:] for n in needed}
            read = {i for n in later - before for i in n.inputs}
            stored = set(self.full_outputs())
            most = max(most, len(before & (read | stored)))
        return most

    def _needed(self, values: Sequence[Node]) -> set[Node]:
        """What of an element `values` are computed from, themselves and operands among it."""
        found: set[Node] = set()
        stack = list(values)
        while stack:
            n = stack.pop()
            if n not in found and n.shape[-1] == self.group.width:
                found.add(n)
                stack += n.inputs if n in self.inside else ()
        return found

    def inputs(self, functions: Sequence[str]) -> list[str]:
        again = [
            o
            for o in self.body.pointers()
            if self.body.is_along_width(o) and sum(f"({o.member}," in f for f in functions) > 1
        ]
        return [*self.body.members(again), f"static constexpr int kAgain = {len(again)};"]

    def run(self) -> str:
        sizes = ", ".join(name for name, _ in self.sizes())
        width = self.group.width
        fixed = self.reductions and not isinstance(width, Sym)
        known = f"<{width}>" if fixed else ""  # fewer kernels are compiled then
        text = f"rf::rows{known}(body, {sizes}, {self.aligned()}, work, on)"
        if not self.group.quantized:
            return text
        smaller = f"rf::rows_quantized(body, quantized, {sizes}, {self.aligned()}, on)"
        return f"quantized ? {smaller}\n      : {text}"

    def works_in_memory(self, scope: Scope) -> bool:
        width = self.group.width
        narrow = isinstance(width, int) and width < _SPLIT_FROM
        return not narrow and super().works_in_memory(scope)
