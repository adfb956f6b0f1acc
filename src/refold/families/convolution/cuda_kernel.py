"""A convolution for CUDA as text: the call of its kernel."""

from __future__ import annotations

from typing import TypeVar

from refold.codegen.cuda import CudaKernel, planned
from refold.codegen.launch import Scope
from refold.convolve import DIRECT, PATCHES
from refold.families.convolution.kernel import FORM
from refold.flat import FLAT
from refold.plan import Group
from refold.plan.convolution import ConvolutionKernel, is_statistic

T = TypeVar("T")

_FUNCTIONS = {
    PATCHES: "patches",
    DIRECT: "direct",
    FLAT: "flat",
}  # where it is another than that of the header
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

    @property
    def may_work_in_memory(self) -> bool:
        """Whether the kernel packs kernels, or takes statistics, in memory that it works in."""
        return self.plan.schedule.kernels.packs or self.takes_statistics

    @property
    def takes_statistics(self) -> bool:
        """Whether it takes the mean or the variance of each channel of an image."""
        conv = self.group.product
        return any(is_statistic(n, conv) for n in self.group.reductions)

    def schedule(self) -> str:
        """The C++ type that the kernel is instantiated with."""
        return self.plan.schedule.text(MODES[self.plan.kind], self.plan.at_once)

    def asked(self) -> str:
        kernels = self.plan.schedule.kernels
        what = _FUNCTIONS[kernels] if kernels.packs else "statistics"
        return f"rf::{what}_workspace_size<{self.schedule()}, {self.struct_name()}>"

    @property
    def is_packed(self) -> bool:
        """Whether the kernel is given packed kernels."""
        return bool(self.plan.packs)

    def run(self) -> str:
        function = _FUNCTIONS.get(self.plan.schedule.kernels, "convolution")
        if self.takes_statistics and function == "convolution":
            function = "convolution_statistics"
        packed = ["w_packed"] if self.is_packed else []
        sizes = [name for name, _ in self._of_images(self.sizes())]
        aligned = [] if function in ("direct", "flat") else ["body.is_aligned()"]
        work = ["work"] if self.may_work_in_memory else []
        given = ", ".join([self.sized(), "a", "w", *packed, *sizes, *aligned, *work, "on"])
        return f"rf::{function}<{self.schedule()}>({given})"

    def sizes_of_needs(self, scope: Scope) -> list[str]:
        return self._of_images(super().sizes_of_needs(scope))

    def _of_images(self, sizes: list[T]) -> list[T]:
        """Of sizes, but for the width of the body's rows where these are places."""
        return sizes[:-1] if self.group.last else sizes

    def sides(self) -> list[tuple[str, str]]:
        x, w = self.group.sides
        packed = [("float*", "w_packed")] if self.is_packed else []
        return [(self.pointer(x), "a"), (self.pointer(w), "w"), *packed]

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        x, w = self.group.sides
        packed = [scope.packed[w]] if self.is_packed else []
        return [], [scope.operands[x], scope.operands[w], *packed]
