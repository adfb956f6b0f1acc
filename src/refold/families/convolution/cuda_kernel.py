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

    @property
    def by_patches(self) -> bool:
        """Whether the kernel packs kernels itself, in memory that it works in."""
        return self.plan.schedule.kernels.packs

    def schedule(self) -> str:
        """The C++ type that the kernel is instantiated with."""
        schedule, channels = self.plan.schedule, self.plan.at_once
        names = {"mode": MODES[self.plan.kind], "tile": schedule.tile.capitalize()}
        return schedule.kernels.type.format(**names, channels=channels)

    def asked(self, sizes: Sequence[str]) -> str:
        if not self.by_patches:
            return super().asked(sizes)
        types = f"{self.schedule()}, rf::{self.struct_name()}"
        return f"rf::patches_workspace_size<{types}>({', '.join(sizes)}, size)"

    def works_in_memory(self, scope: Scope) -> bool:
        return self.by_patches

    def run(self) -> str:
        given, schedule = ", ".join(name for name, _ in self.sizes()), self.schedule()
        if self.by_patches:
            return f"rf::patches<{schedule}>(body, a, w, {given}, {self.aligned()}, work, on)"
        return f"rf::convolution<{schedule}>(body, a, w, w_packed, {given}, {self.aligned()}, on)"

    def sides(self) -> tuple[list[tuple[str, str]], list[str]]:
        x, w = self.group.sides
        packed = [] if self.by_patches else [("float*", "w_packed")]
        return [(self.pointer(x), "a"), (self.pointer(w), "w"), *packed], []

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        x, w = self.group.sides
        packed = [] if self.by_patches else [scope.packed[w]]
        return [], [scope.operands[x], scope.operands[w], *packed]
