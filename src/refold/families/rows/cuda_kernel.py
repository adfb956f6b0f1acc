"""Kernels of rows for CUDA (cuda/rows.cuh)."""

from __future__ import annotations

from refold.codegen.body import Operand
from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.kernel import Form
from refold.codegen.names import together
from refold.families.rows.kernel import FORM
from refold.families.rows.one_pass import one_pass
from refold.ir import Sym
from refold.plan import Group
from refold.plan.rows import RowsSchedule


class RowsKernel(CudaKernel):
    """Passes over rows. form: that of the family; pointwise kernels have no pass. plan: what is
    decided of them."""

    template = "rows"

    def __init__(self, group: Group, name: str, form: Form = FORM) -> None:
        super().__init__(group, name, form)
        self.plan = planned(group, group.rows_schedule, RowsSchedule)
        if self.plan.one_pass:
            self.reductions = one_pass(self.reductions)
            self.reduced = {n: r for r in self.reductions for n in r.nodes}

    def headers(self) -> list[str]:
        return [*super().headers(), *(["quantized_rows.cuh"] if self.group.quantized else [])]

    def functor(self) -> list[str]:
        lines = super().functor()
        if self.plan.blocks != 2:
            lines.append(f"static constexpr int kMinBlocks = {self.plan.blocks};")
        elif self.reductions and (self.plan.one_pass or not self.plan.roomy):
            lines.append("static constexpr bool kRoomy = false;")
        again = self._again()
        if again:
            lines.insert(0, f"static constexpr int kReused = {len(again)};")
        lines += self.aligned()
        if not self.full_outputs():
            return lines
        reads = [f"{self.body.load(o, 'V')};" for o in self._along() if o.node in self.passes[-1]]
        head = "template <class V, class C> RF_FN void read(long row, C col)"
        return [*lines, *self.function(head, together(reads))]

    def _along(self) -> list[Operand]:
        return [o for o in self.body.pointers() if self.body.is_along_width(o)]

    def _again(self) -> list[Operand]:
        """What is read by several passes, or by `read` before it is by `store`."""
        passes = [*self.passes, *(self.passes[-1:] if self.full_outputs() else [])]
        return [o for o in self._along() if sum(o.node in p for p in passes) > 1]

    def inputs(self) -> list[str]:
        return self.body.members(self._again())

    def run(self) -> str:
        sizes = ", ".join(name for name, _ in self.sizes())
        width = self.group.width
        fixed = self.reductions and not isinstance(width, Sym)
        known = f"<{width}>" if fixed else ""  # fewer kernels are compiled then
        called = f"{sizes}, body.is_aligned()"
        text = f"rf::rows{known}({self.sized()}, {called}, work, on)"
        if not self.group.quantized:
            return text
        return f"quantized ? rf::rows_quantized({self.sized()}, quantized, {called}, on) : {text}"

    def address(self, operand: Operand) -> str:
        return f"{operand.member}.p" if operand in self._again() else operand.member

    @property
    def may_work_in_memory(self) -> bool:
        return self.plan.may_split
