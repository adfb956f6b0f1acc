"""Kernels of channels for CUDA (cuda/channels.cuh)."""

from __future__ import annotations

from dataclasses import replace

from refold.codegen.body import reductions
from refold.codegen.cuda import CudaKernel
from refold.families.channels.kernel import FORM
from refold.families.rows.one_pass import one_pass, with_squares
from refold.plan import Group

# a pass more reads memory again
_FORM = replace(FORM, reductions=lambda group: one_pass(with_squares(reductions(group))))


class ChannelsKernel(CudaKernel):
    """Passes over the channels of each place."""

    template = "channels"
    may_work_in_memory = False

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, _FORM)

    def functor(self) -> list[str]:
        along = [self.address(o) for o in self.body.pointers() if self.body.is_along_width(o)]
        along += [self.member(n) for n in self.group.outputs]
        told = self.function("bool is_aligned()", [f"return rf::aligned({', '.join(along)});"])
        return [*super().functor(), *told]

    def run(self) -> str:
        return f"rf::channels({self.sized()}, outer, count, width, body.is_aligned(), on)"
