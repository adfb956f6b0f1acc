"""Pointwise kernels for CUDA (cuda/channels_last.cuh, and those of rows)."""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel
from refold.families.pointwise.kernel import FORM
from refold.families.rows.cuda_kernel import RowsKernel
from refold.ir import Dim, numel
from refold.plan import Group


def cuda(group: Group, name: str) -> RowsKernel:
    return LastKernel(group, name) if group.turned else RowsKernel(group, name, FORM)


class LastKernel(RowsKernel):
    """Values of images some of which lie in another order than the kernel passes over them."""

    template = "channels_last"
    may_work_in_memory = False

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)

    def headers(self) -> list[str]:
        return CudaKernel.headers(self)

    def functor(self) -> list[str]:
        lines = super().functor()
        lines.append(f"static constexpr int kLast = {len(self.group.turned)};")
        for k, node in enumerate(self.group.turned):
            read = f"return read_one({self.body.by_node[node].member} + at);"
            lines += self.function(f"RF_FN Real given(Step<{k}>, long at)", [read])
        return lines

    def sizes(self) -> list[tuple[str, Dim]]:
        *before, channels, width = self.body.dims
        return [("images", numel(before)), ("channels", channels), ("width", width)]

    def run(self) -> str:
        return f"rf::channels_last({self.sized()}, images, channels, width, on)"
