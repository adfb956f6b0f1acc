"""Run a graph on tensors, op by op, by the op table: the engine's own reference."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from refold.ir.dim import Sym
from refold.ir.graph import Graph, topological
from refold.ir.node import Node
from refold.ir.ops import OPS
from refold.ir.shapes import RANK


def evaluate(
    graph: Graph,
    values: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int] | None = None,
    dtype: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """The outputs of `graph`, in their true shapes.

    values: a tensor for every leaf, by its name. sizes: the value of every named size. dtype:
    compute all floats in this type (float64 for proofs); None for the graph's own.
    What is drawn comes of PyTorch's generators as they are.
    Raises KeyError for a leaf without a value and NotImplementedError for opaque calls.
    """
    leaves = {n: values[n["name"]] for n in graph.nodes() if n.row.is_named}
    done = run(graph.roots(), leaves, sizes or {}, dtype)
    return [
        done[o.value].reshape([concrete(d, sizes or {}) for d in o.shape]) for o in graph.outputs
    ]


def run(
    roots: Iterable[Node],
    leaves: Mapping[Node, torch.Tensor],
    sizes: Mapping[str, int],
    dtype: torch.dtype | None = None,
    order: Sequence[Node] | None = None,
) -> dict[Node, torch.Tensor]:
    """The value of every node that `roots` need, on tensors padded to rank 5.

    order: those nodes, each after its inputs, where the caller has them.
    """
    done: dict[Node, torch.Tensor] = {}
    for node in topological(roots) if order is None else order:
        kind = dtype if dtype is not None and node.is_float else node.dtype
        if node.op == "scalar":
            value = concrete(node["value"], sizes)
            done[node] = torch.full((1,) * RANK, value, dtype=kind)
        elif node in leaves:
            shape = [concrete(d, sizes) for d in node.shape]
            done[node] = leaves[node].to(kind).reshape(shape)
        elif node.op == "aten":
            raise NotImplementedError("opaque calls cannot be evaluated")
        else:
            attrs = {k: concrete(v, sizes) for k, v in node.attrs}
            if node.op == "cast":
                attrs["dtype"] = kind
            made = OPS[node.op].run(*(done[i] for i in node.inputs), **attrs)
            done[node] = made.to(kind) if node.row.draws else made
    return done


def concrete(value: Any, sizes: Mapping[str, int]) -> Any:
    """`value` with every named size replaced."""
    if isinstance(value, tuple):
        return tuple(concrete(v, sizes) for v in value)
    if not isinstance(value, Sym):
        return value
    total = 0
    for names, coefficient in value.terms:
        product = coefficient
        for name in names:
            product *= sizes[name]
        total += product
    return total


__all__ = ["concrete", "evaluate", "run"]
