"""Kernels of attention for CUDA (cuda/attention.cuh, cuda/attention_gradient.cuh)."""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel
from refold.codegen.launch import Scope
from refold.families.attention.kernel import FORM, GRADIENT_FORM, given, of_gradient
from refold.plan import Group

_SIDES = ("q", "k", "v", "mask")
_GRADIENT_SIDES = ("gradient", "q", "k", "v", "result", "sums", "mask")


class AttentionKernel(CudaKernel):
    """Attention or its gradients, whose operands it is given whole."""

    def __init__(self, group: Group, name: str) -> None:
        gradient = of_gradient(group)
        super().__init__(group, name, GRADIENT_FORM if gradient else FORM)
        self.template = "attention_gradient" if gradient else "attention"
        names = _GRADIENT_SIDES if gradient else _SIDES
        self.operands = dict(zip(names, given(group), strict=True))

    def sides(self) -> list[tuple[str, str]]:
        return [("float*", name) for name, node in self.operands.items() if node is not None]

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        return [], [scope.operands[i] for i in self.operands.values() if i is not None]

    def run(self) -> str:
        names = [name if node is not None else "nullptr" for name, node in self.operands.items()]
        sizes = ", ".join(name for name, _ in self.sizes())
        return f"rf::{self.template}({self.sized()}, {', '.join(names)}, {sizes}, work, on)"

    @property
    def may_work_in_memory(self) -> bool:
        return True
