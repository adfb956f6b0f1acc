"""A convolution for CUDA as text: the call of its kernel."""

from __future__ import annotations

from collections.abc import Sequence

from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.launch import Scope
from refold.families.convolution.kernel import FORM
from refold.plan import Group
from refold.plan.convolution import ConvolutionKernel

MODES = {"ieee": "Ieee", "tf32": "Tf32"}  # the C++ types of the kinds


class CudaConvolution(CudaKernel):
    """A convolution with its epilogue. plan: what is decided of it."""

    template = "convolution"

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)
        self.plan = planned(group, group.kernel, ConvolutionKernel)

    def headers(self) -> list[str]:
        return [self.plan.schedule.kernels.header]

    def functor(self) -> list[str]:
        return [*super().functor(), *self.aligned()]

    def run(self) -> str:
        schedule = self.plan.schedule.text(MODES[self.plan.kind])
        given = ", ".join(name for name, _ in self.sizes())
        sides = "a, w, w_packed"
        return (
            f"rf::convolution<{schedule}>({self.sized()}, {sides}, {given}, body.is_aligned(), on)"
        )

    def sides(self) -> list[tuple[str, str]]:
        x, w = self.group.sides
        return [(self.pointer(x), "a"), (self.pointer(w), "w"), ("float*", "w_packed")]

    @property
    def may_work_in_memory(self) -> bool:
        return False

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        x, w = self.group.sides
        given: Sequence[str] = (scope.operands[x], scope.operands[w], scope.packed[w])
        return [], list(given)
