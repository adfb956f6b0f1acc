"""Kernels of channels for CUDA (cuda/channels.cuh, cuda/held_channels.cuh)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from refold.codegen.body import Operand, reductions
from refold.codegen.cuda import CudaKernel, planned
from refold.families.channels.kernel import FORM, functor
from refold.families.rows.one_pass import one_pass, with_squares
from refold.plan import Group
from refold.plan.rows import ChannelsSchedule
from refold.plan.space import channels_of

# a pass more reads memory again
_FORM = replace(FORM, reductions=lambda group: one_pass(with_squares(reductions(group))))
# ... but for what registers hold
_HELD = replace(FORM, functor=partial(functor, held=True), filled=lambda kernel: None)


class ChannelsKernel(CudaKernel):
    """Passes over the channels of each place. held: whether a block has them in registers."""

    may_work_in_memory = False

    def __init__(self, group: Group, name: str) -> None:
        self.held = planned(group, group.rows_schedule, ChannelsSchedule).held
        super().__init__(group, name, _HELD if self.held else _FORM)
        self.template = "held_channels" if self.held else "channels"

    def functor(self) -> list[str]:
        lines = super().functor()
        again = self._again()
        if again:
            lines.insert(0, f"static constexpr int kReused = {len(again)};")
        along = [self.address(o) for o in self.body.pointers() if self.body.is_along_width(o)]
        along += [self.member(n) for n in self.group.outputs]
        told = self.function("bool is_aligned()", [f"return rf::aligned({', '.join(along)});"])
        return [*lines, *told]

    def _again(self) -> list[Operand]:
        """What registers hold: it is read by several passes, or by one and where results are."""
        along = [o for o in self.body.pointers() if self.body.is_along_width(o)]
        return [o for o in along if self.held and sum(o.node in p for p in self.passes) > 1]

    def address(self, operand: Operand) -> str:
        return f"{operand.member}.p" if operand in self._again() else operand.member

    def inputs(self) -> list[str]:
        return self.body.members(self._again())

    def run(self) -> str:
        if not self.held:
            return f"rf::channels({self.sized()}, outer, count, width, body.is_aligned(), on)"
        axis = channels_of(self.group)
        assert axis is not None
        called = f"{self.sized()}, outer, width, body.is_aligned(), on"
        return f"rf::held_channels<{self.group.dims[axis]}>({called})"
