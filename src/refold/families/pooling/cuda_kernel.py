"""Kernels of pooling for CUDA (cuda/pooling.cuh)."""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel
from refold.families.pooling.kernel import FORM
from refold.plan import Group


class PoolingKernel(CudaKernel):
    """Windows of images."""

    template = "pooling"

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)

    def run(self) -> str:
        return f"rf::pooling({self.sized()}, planes, on)"

    @property
    def may_work_in_memory(self) -> bool:
        return False
