"""A group for the CPU: its entry, and the Python that calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refold.codegen.kernel import Form, GroupKernel, macro
from refold.codegen.launch import Scope
from refold.ir import Node
from refold.plan import Group


@dataclass(frozen=True)
class Cpp:
    """A family's template for the CPU. header: its file. run: the C++ call that runs {body}.
    effort: what a kernel takes the compiler, in tenths of a second. shared: the same of what all
    of the family's have in common and a part of the file of its own may hold; 0: nothing."""

    header: str
    run: str
    effort: int = 4
    shared: int = 0


BINDING = 4  # what Python's side of a file takes the compiler, as `effort` has it
WORTH_IT = 12  # what headers take a second compiler, and a little


def beside(kernels: Sequence[CppKernel]) -> frozenset[str]:
    """Names of the kernels that a second compiler reads, so that two end at about the same time.
    Empty where one compiler alone is as fast."""
    shared = sum({k.group.family: k.cpp.shared for k in kernels}.values())
    first, second = BINDING + sum(k.cpp.effort for k in kernels if k.cpp.shared), shared
    found = set[str]()
    for k in sorted(kernels, key=lambda k: -k.cpp.effort):  # the largest first
        if k.cpp.shared:
            continue
        if second < first:
            found.add(k.name)
            second += k.cpp.effort
        else:
            first += k.cpp.effort
    return frozenset(found if shared or second >= WORTH_IT else ())


class CppKernel(GroupKernel):
    """One group for the CPU."""

    def __init__(self, group: Group, name: str, form: Form, cpp: Cpp) -> None:
        super().__init__(group, name, form)
        self.cpp = cpp

    def sides(self) -> tuple[Node, ...]:
        """What the template reads itself: the sides of a product."""
        return self.group.sides if self.group.is_product else ()

    def entry(self, beside: bool = False) -> str:
        """The function by which Python calls the kernel. beside: see the function above."""
        sides = list(zip(map(self.pointer, self.sides()), ("a", "w"), strict=False))
        called = f"rf::{self.cpp.run.format(body=self.sized())}"
        kind = "RF_PRODUCT" if self.cpp.shared else "RF_BESIDE" if beside else "RF_KERNEL"
        return macro(kind, self.name, self.parameters(sides), called)

    def call(self, scope: Scope) -> list[str]:
        """The statement of emitted Python that runs the kernel."""
        parts = self.given(scope.operands, scope.results, scope.sizes)
        parts = [*(scope.operands[i] for i in self.sides()), *parts]
        return [f"_refold_kernels.{self.name}({', '.join(parts)})"]
