"""Sizes that torch.export found, as polynomials of the inputs' sizes."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch.utils import _pytree as pytree

from refold.capture.values import CaptureError
from refold.ir import Dim, Sym


class Sizes:
    """Reads sizes; the same symbol gets the same name, s0, s1 ... in the order they are met."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def dim(self, size: Any) -> Dim:
        """An int or a torch.SymInt. Raises CaptureError for a size that is no polynomial."""
        if isinstance(size, int):
            return size
        return self._polynomial(size.node.expr, size.node.shape_env)

    def _polynomial(self, expr: sympy.Expr, env: Any) -> Dim:
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            if expr not in env.backed_var_to_val:
                raise CaptureError("a size depends on a tensor's values")
            name = self.names.setdefault(str(expr), f"s{len(self.names)}")
            return Sym.named(name, int(env.backed_var_to_val[expr]))
        parts = [self._polynomial(a, env) for a in expr.args]
        if expr.is_Add:
            total: Dim = 0
            for part in parts:
                total = part + total
            return total
        if expr.is_Mul:
            product: Dim = 1
            for part in parts:
                product = part * product
            return product
        if expr.is_Pow and isinstance(parts[1], int) and parts[1] > 0:
            power: Dim = 1
            for _ in range(parts[1]):
                power = parts[0] * power
            return power
        raise CaptureError(f"a size is {expr}, which is no polynomial")


def check_sizes(graph: torch.fx.Graph) -> None:
    """Raises CaptureError where a tensor that the outputs are computed from has a size that is no
    polynomial: a reader of the graph would, after the decomposition, which takes longest."""
    sizes = Sizes()
    needed = {n for n in graph.nodes if n.op == "output"}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    for node in graph.nodes:
        if node in needed and node.op == "call_function":
            for value in pytree.tree_leaves(node.meta.get("val")):
                if isinstance(value, torch.Tensor):
                    for size in value.shape:
                        sizes.dim(size)
