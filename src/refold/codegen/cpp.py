"""A group for the CPU: its entry, and the Python that calls it."""

from __future__ import annotations

from dataclasses import dataclass

from refold.codegen.kernel import Form, GroupKernel, macro
from refold.codegen.launch import Scope
from refold.ir import Node
from refold.plan import Group


@dataclass(frozen=True)
class Cpp:
    """A family's template for the CPU. header: its file. run: the C++ call that runs {body}."""

    header: str
    run: str


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
        return macro("RF_KERNEL", self.name, self.parameters(sides), called)

    def call(self, scope: Scope) -> list[str]:
        """The statement of emitted Python that runs the kernel."""
        parts = self.given(scope.operands, scope.results, scope.sizes)
        parts = [*(scope.operands[i] for i in self.sides()), *parts]
        return [f"_refold_kernels.{self.name}({', '.join(parts)})"]
