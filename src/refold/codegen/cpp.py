"""A group for the CPU: its entry, and the Python that calls it."""

from __future__ import annotations

from dataclasses import dataclass

from refold.codegen.kernel import Form, GroupKernel, macro
from refold.codegen.launch import Scope
from refold.ir import Node
from refold.plan import Group


@dataclass(frozen=True)
class Cpp:
    """A family's template for the CPU. header: its file. run: the C++ call that runs {body}.
    entry: the macro of run.h by which Python calls it: RF_PRODUCT of what is in both parts where
    two compilers work side by side."""

    header: str
    run: str
    entry: str = "RF_KERNEL"

    @property
    def parts(self) -> int:
        """In how many parts a file with such a kernel may be compiled."""
        return 2 if self.entry == "RF_PRODUCT" else 1


class CppKernel(GroupKernel):
    """One group for the CPU."""

    def __init__(self, group: Group, name: str, form: Form, cpp: Cpp) -> None:
        super().__init__(group, name, form)
        self.cpp = cpp

    def sides(self) -> tuple[Node, ...]:
        """What the template reads itself: the sides of a product."""
        return self.group.sides if self.group.is_product else ()

    def entry(self) -> str:
        """The function by which Python calls the kernel."""
        sides = list(zip(map(self.pointer, self.sides()), ("a", "w"), strict=False))
        called = f"rf::{self.cpp.run.format(body=self.sized())}"
        return macro(self.cpp.entry, self.name, self.parameters(sides), called)

    def call(self, scope: Scope) -> list[str]:
        """The statement of emitted Python that runs the kernel."""
        parts = self.given(scope.operands, scope.results, scope.sizes)
        parts = [*(scope.operands[i] for i in self.sides()), *parts]
        return [f"_refold_kernels.{self.name}({', '.join(parts)})"]
