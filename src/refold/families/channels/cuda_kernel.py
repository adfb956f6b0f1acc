"""Kernels of channels for CUDA (cuda/channels.cuh)."""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel
from refold.families.channels.kernel import FORM
from refold.plan import Group


class ChannelsKernel(CudaKernel):
    """Passes over the channels of each place."""

    template = "channels"
    may_work_in_memory = False

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)

    def run(self) -> str:
        return f"rf::channels({self.sized()}, outer, count, width, on)"
