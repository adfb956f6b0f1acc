"""Kernels of channels for CUDA (cuda/channels.cuh, cuda/held_channels.cuh)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from refold.codegen.body import Operand, reductions
from refold.codegen.cuda import CudaKernel
from refold.families.channels.kernel import FORM, functor
from refold.families.rows.one_pass import one_pass, with_squares
from refold.families.rows.schedules import is_slow, kept
from refold.ir import Node
from refold.plan import Group
from refold.plan.space import channels_of

# a pass more reads memory again
_FORM = replace(FORM, reductions=lambda group: one_pass(with_squares(reductions(group))))
# ... but for what registers hold
_HELD = replace(FORM, functor=partial(functor, held=True), filled=lambda kernel: None)
_MOST_HELD = 512  # channels
_MOST_RESULTS = 2  # of each


class ChannelsKernel(CudaKernel):
    """Passes over the channels of each place. held: whether a block has them in registers."""

    may_work_in_memory = False

    def __init__(self, group: Group, name: str) -> None:
        self.held = _is_held(group)
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
        called = f"{self.sized()}, outer, width, body.is_aligned(), on"
        return f"rf::held_channels<{self.group.dims[_axis(self.group)]}>({called})"


def _axis(group: Group) -> int:
    axis = channels_of(group)
    assert axis is not None
    return axis


def _is_held(group: Group) -> bool:
    """Whether registers can hold all channels, and something follows the first pass over them."""
    axis = _axis(group)
    count = group.dims[axis]
    if not isinstance(count, int) or count > _MOST_HELD or group.real != torch.float32:
        return False
    stored = [n for n in group.outputs if n.shape == group.dims]
    passes = FORM.reductions(group)
    if is_slow(group) or len(stored) > _MOST_RESULTS or len(passes) + bool(stored) < 2:
        return False

    def is_element(n: Node) -> bool:
        return n.shape[axis] != 1

    return kept(group, passes, is_element) <= 1
