"""Kernels of attention for CUDA (cuda/attention.cuh, cuda/attention_gradient.cuh)."""

from __future__ import annotations

from collections.abc import Mapping

from refold.codegen.cuda import CudaKernel
from refold.codegen.launch import Scope
from refold.families.attention.kernel import FORM, GRADIENT_FORM, given, of_gradient
from refold.ir import Dim, Sym, numel
from refold.plan import Group

_SIDES = ("q", "k", "v", "mask")
_WHOLE = ("sums", "mask")  # operands that are read without gaps
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
        given = (name for name, node in self.operands.items() if node is not None)
        return [("float*" if name in _WHOLE else "Tokens", name) for name in given]

    def given_sides(self, scope: Scope) -> tuple[list[str], list[str]]:
        texts = []
        for name, node in self.operands.items():
            if node is None:
                continue
            text = scope.operands[node]
            if name in _WHOLE:
                texts.append(text)
            elif node in scope.as_they_lie:
                texts.append(f"*_refold_tokens({text})")
            else:
                steps = (numel(node.shape[-n:]) for n in (3, 2, 1))
                texts += [text, *(_text_of(n, scope.sizes) for n in steps)]
        return [], texts

    def run(self) -> str:
        names = [name if node is not None else "nullptr" for name, node in self.operands.items()]
        sizes = ", ".join(name for name, _ in self.sizes())
        return f"rf::{self.template}({self.sized()}, {', '.join(names)}, {sizes}, work, on)"

    @property
    def may_work_in_memory(self) -> bool:
        return True


def _text_of(dim: Dim, sizes: Mapping[str, str]) -> str:
    return dim.text(sizes) if isinstance(dim, Sym) else str(dim)
