"""Kernels of rows for CUDA (cuda/rows.cuh)."""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.kernel import Form
from refold.codegen.launch import Scope
from refold.families.rows.kernel import FORM
from refold.families.rows.one_pass import one_pass
from refold.ir import Sym
from refold.plan import Group


class RowsKernel(CudaKernel):
    """Passes over rows. form: that of the family; pointwise kernels have no pass. plan: what is
    decided of them."""

    template = "rows"

    def __init__(self, group: Group, name: str, form: Form = FORM) -> None:
        super().__init__(group, name, form)
        self.plan = planned(group, group.rows_schedule)
        if self.plan.one_pass:
            self.reductions = one_pass(self.reductions)
            self.reduced = {n: r for r in self.reductions for n in r.nodes}

    def headers(self) -> list[str]:
        return [*super().headers(), *(["quantized_rows.cuh"] if self.group.quantized else [])]

    def functor(self) -> list[str]:
        lines = [*super().functor(), f"static constexpr int kMinBlocks = {self.plan.blocks};"]
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

    def inputs(self, functions: Sequence[str]) -> list[str]:
        again = [
            o
            for o in self.body.pointers()
            if self.body.is_along_width(o) and sum(f"({o.member}," in f for f in functions) > 1
        ]
        return [*self.body.members(again), f"static constexpr int kReused = {len(again)};"]

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
        return self.plan.may_split
