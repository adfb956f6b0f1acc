"""Kernels of attention for CUDA (cuda/attention.cuh)."""

from __future__ import annotations

from refold.codegen.cuda import CudaKernel
from refold.codegen.launch import Scope
from refold.families.attention.kernel import FORM, attention_of
from refold.plan import Group

_SIDES = ("q", "k", "v", "mask")


class AttentionKernel(CudaKernel):
    """Attention, whose operands it is given whole."""

    template = "attention"

    def __init__(self, group: Group, name: str) -> None:
        super().__init__(group, name, FORM)

    def sides(self) -> list[tuple[str, str]]:
        given = zip(attention_of(self).inputs, _SIDES, strict=False)
        return [("float*", name) for _, name in given]

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        return [], [scope.operands[i] for i in attention_of(self).inputs]

    def run(self) -> str:
        names = [name for _, name in self.sides()]
        given = [*names, "nullptr"][: len(_SIDES)]
        sizes = ", ".join(name for name, _ in self.sizes())
        return f"rf::attention({self.sized()}, {', '.join(given)}, {sizes}, work, on)"

    @property
    def may_work_in_memory(self) -> bool:
        return True
