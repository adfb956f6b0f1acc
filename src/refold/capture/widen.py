"""Arithmetic of 16 bits as what PyTorch's kernels compute it in: float32.

PyTorch widens float16 and bfloat16 inside each kernel and rounds what the kernel stores. `widen`
makes the widening plain: leaves are cast to float32, everything between is float32, results are
cast back. The algebra then sees one dtype, and a fused kernel rounds once, where PyTorch rounds
after every op: equal in the reals, and nearer to them.

Rounding is kept where it can be seen by more than its size: where the model itself asks for 16
bits of something wider, and in front of what jumps (comparisons, floor, ...) or leaves this tool's
hands (calls of PyTorch). Such a value is rounded for all of its readers, so that `x == x.max()`
compares like with like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from refold.ir import HALF_DTYPES, Graph, Kind, Node, as_scalar, make
from refold.ir.node import rebuild


@dataclass(frozen=True)
class Widened:
    """A graph without arithmetic of 16 bits.

    stored: for values that PyTorch keeps in 16 bits, which: what they may be stored as between
    kernels at no loss against PyTorch. every: the dtype that all inputs, parameters and results
    have, if it is one of 16 bits.
    """

    graph: Graph
    stored: Mapping[Node, torch.dtype]
    every: torch.dtype | None = None


def is_narrow(node: Node) -> bool:
    return node.dtype in HALF_DTYPES


def widen(graph: Graph) -> Widened:
    """The same function, its 16-bit arithmetic in float32; other graphs come back as they are."""
    nodes = graph.nodes()
    if not any(is_narrow(n) for n in nodes):
        return Widened(graph, {})
    rounded = _rounded(graph, nodes)
    done: dict[Node, Node] = {}
    stored: dict[Node, torch.dtype] = {}
    for node in nodes:
        wide = _wide(node, done)
        if node in rounded and not _is_widened(wide):
            wide = _to(_to(wide, node.dtype), torch.float32)
        done[node] = wide
        if is_narrow(node) and not _is_widened(wide):
            stored[wide] = node.dtype
    ends = {n.dtype for n in nodes if n.row.is_named and n.is_float}
    ends |= {r.dtype for r in graph.roots() if r.is_float}
    every = ends.pop() if len(ends) == 1 else None
    return Widened(graph.with_roots(_exact(r, done) for r in graph.roots()), stored, every)


def _to(node: Node, dtype: torch.dtype) -> Node:
    return node if node.dtype == dtype else make("cast", node, dtype=dtype)


def _is_widened(node: Node) -> bool:
    """Is this a value of 16 bits, read as float32?"""
    return node.op == "cast" and is_narrow(node.inputs[0])


def _exact(node: Node, done: Mapping[Node, Node]) -> Node:
    """A value in its own dtype."""
    wide = done[node]
    return wide.inputs[0] if is_narrow(node) and _is_widened(wide) else _to(wide, node.dtype)


def _wide(node: Node, done: Mapping[Node, Node]) -> Node:
    """A value in float32 if it is one of 16 bits, else in its own dtype."""
    if not node.inputs:
        if node.op == "scalar" and is_narrow(node):
            return as_scalar(node["value"], torch.float32)
        return _to(node, torch.float32) if is_narrow(node) else node
    if node.op == "cast":
        (x,) = node.inputs
        if not is_narrow(node):
            # from 16 bits: to a wider float exactly, to an integer what the rounded value gives
            return _to(done[x] if node.is_float else _exact(x, done), node.dtype)
        if not is_narrow(x) or x.dtype != node.dtype:
            return _to(_to(done[x], node.dtype), torch.float32)
        return done[x]
    if node.kind is Kind.OPAQUE:
        made = rebuild(node, tuple(_exact(i, done) for i in node.inputs))
    else:
        made = rebuild(node, tuple(done[i] for i in node.inputs))
    return _to(made, torch.float32) if is_narrow(made) else made


def _rounded(graph: Graph, nodes: list[Node]) -> set[Node]:
    """The values of 16 bits that are rounded where PyTorch rounds them."""
    readers: dict[Node, int] = {}
    for n in nodes:
        for i in n.inputs:
            readers[i] = readers.get(i, 0) + 1
    found = {r for r in graph.roots() if is_narrow(r) and readers.get(r)}
    for n in reversed(nodes):
        jumps = n.row.jumps or (n.op == "cast" and not n.is_float)
        # a rounded result needs no more than rounded inputs where it is one of them
        selects = n in found and n.row.selects
        if jumps or selects or n.kind is Kind.OPAQUE:
            found |= {i for i in n.inputs if is_narrow(i)}
    return {n for n in found if n.inputs}
