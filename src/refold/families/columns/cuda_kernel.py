"""Kernels of columns for CUDA (cuda/columns.cuh)."""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel
from refold.families.columns.kernel import FORM
from refold.plan import Group


class ColumnsKernel(CudaKernel):
    """Reductions over the rows for each column."""

    template = "columns"

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)

    def functor(self) -> list[str]:
        return [*super().functor(), *self.aligned()]
