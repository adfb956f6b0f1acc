"""A group for CUDA: its entries, and the Python that calls them.

Entries take addresses, sizes, the stream and the device as ints, synchronise nothing and allocate
nothing; memory to work in belongs to the stream and is reused.
"""

from __future__ import annotations

from typing import TypeVar

from refold.codegen.body import Operand
from refold.codegen.kernel import GroupKernel, macro
from refold.codegen.launch import Scope
from refold.plan import Group

T = TypeVar("T")


def planned(group: Group, decided: object, kind: type[T]) -> T:
    """What a plan for a GPU has decided of a group, which is of some kind.

    Raises ValueError for a plan that was made for another device.
    """
    if not isinstance(decided, kind):
        raise ValueError(
            f"{group.name}: expected a plan for a GPU, which says how its kernels are cut, got one"
            " for another device; make the plan for the device that the text is written for"
        )
    return decided


class CudaKernel(GroupKernel):
    """One group for CUDA. A family whose kernels need more than this has a class of its own.

    template: the name of the family's C++ functions, and of their header.
    """

    template = ""

    def headers(self) -> list[str]:
        """The headers that the kernel is instantiated from."""
        narrow = ["narrow.cuh"] if self.group.has_narrow else []
        return [*narrow, f"{self.template}.cuh"]

    def needs(self) -> str:
        """The function that says how much memory the kernel works in; none if that is never any."""
        if not self.may_work_in_memory:
            return ""
        return f"RF_WORKSPACE({self.name}, {self.asked()})\n"

    def asked(self) -> str:
        """The C++ function that says so, of the sizes that `call` gives."""
        return f"{self.template}_workspace_size<{self.struct_name()}>"

    def run(self) -> str:
        """The C++ call that starts the kernel."""
        sizes = ", ".join(name for name, _ in self.sizes())
        return f"rf::{self.template}({self.sized()}, {sizes}, body.is_aligned(), work, on)"

    @property
    def may_quantize(self) -> bool:
        """Whether calls say where the group's value is quantized, if it is."""
        return self.group.quantized is not None

    def sides(self) -> list[tuple[str, str]]:
        """Of a product: (C type, name) of what describes its sides."""
        return []

    def entry(self) -> str:
        """The function by which Python calls the kernel."""
        parameters = self.parameters(self.sides())
        parameters += ["float* quantized"] if self.may_quantize else []
        return macro("RF_KERNEL", self.name, parameters, self.run())

    def aligned(self) -> list[str]:
        """A function of the functor: can what is read and written along the width be taken 16 bytes
        at a time?"""
        along = [self.address(o) for o in self.body.pointers() if self.body.is_along_width(o)]
        along += [self.member(n) for n in self.full_outputs()]
        return self.function("bool is_aligned()", [f"return rf::aligned({', '.join(along)});"])

    def address(self, operand: Operand) -> str:
        """C++ of the address of an operand of the functor."""
        return operand.member

    def call(self, scope: Scope) -> list[str]:
        """The statements of emitted Python that run the kernel."""
        memory = ["0", "0"]
        lines, sides = self.given_sides(scope)
        if self.works_in_memory(scope):
            sizes = [*self.sizes_of_needs(scope), "rf_device"]
            asked = f"_refold_kernels.{self.name}_workspace_size({', '.join(sizes)})"
            lines.append(f"rf_size = {asked}")
            lines.append("rf_work = _refold_workspace(rf_size, rf_stream, rf_device)")
            memory = ["rf_work[0]", "rf_work[1]"]
        parts = [*sides, *self.given(scope.operands, scope.results, scope.sizes)]
        parts += [scope.quantized] if self.may_quantize else []
        parts += [*memory, "rf_stream", "rf_device"]
        return [*lines, f"_refold_kernels.{self.name}({', '.join(parts)})"]

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        """Of a product: statements before the call, and the Python of its sides' arguments."""
        return [], []

    def sizes_of_needs(self, scope: Scope) -> list[str]:
        """The Python of the sizes on which memory to work in depends."""
        return self.given_sizes(scope.sizes)

    def works_in_memory(self, scope: Scope) -> bool:
        """Whether the kernel works in memory beside its operands and results."""
        return self.may_work_in_memory

    @property
    def may_work_in_memory(self) -> bool:
        """Whether some size makes it do so."""
        return bool(self.reductions)
