"""Values that follow from memory, computed in the shape in which they are read."""

from __future__ import annotations

from collections import Counter

import torch

from refold.ir import OPS, Dim, Graph, Kind, Node, make
from refold.ir.graph import within
from refold.ir.node import rebuild

_COMPUTED = (torch.float32, torch.float64)


def reshaped_first(graph: Graph) -> dict[Node, Node]:
    """What follows from what lies in memory by pointwise ops, computed in the shape in which it is
    read, if only that is: one kernel computes and reduces it then, and it is never written."""
    nodes = graph.nodes()
    readers = Counter([*(i for node in nodes for i in node.inputs), *graph.roots()])
    done: dict[Node, Node] = {}
    for node in nodes:
        x = node.inputs[0] if node.inputs else node
        if node.op == "reshape" and _follows_from_memory(x, node.shape, readers):
            done[node] = _computed_as(done[x], x.shape, node.shape)
        else:
            done[node] = rebuild(node, tuple(done[i] for i in node.inputs))
    return done


def _follows_from_memory(x: Node, shape: tuple[Dim, ...], readers: Counter[Node]) -> bool:
    """Is it a pointwise value, that nothing else reads, of leaves and results of library calls of
    its shape, and of what spreads to it in the other shape, too?"""
    read = Counter([x])  # by those that are computed in the other shape, and by the reshape
    found, stack = {x}, [x]
    while stack:
        n = stack.pop()
        row = OPS[n.op]
        if row.kind is not Kind.POINTWISE or row.cpp is None or n.dtype not in _COMPUTED:
            return False
        if any(in_shape(i.shape, n.shape, shape) is None for i in n.inputs):
            return False
        inner = [i for i in n.inputs if i.shape == n.shape]
        if not inner:
            return False
        read.update(i for i in inner if not _lies_in_memory(i))
        more = dict.fromkeys(i for i in inner if not _lies_in_memory(i) and i not in found)
        found.update(more)
        stack += more
    return all(readers[n] == read[n] for n in found)


def _lies_in_memory(x: Node) -> bool:
    return not x.inputs or OPS[x.op].kind is Kind.OPAQUE


def in_shape(
    given: tuple[Dim, ...], old: tuple[Dim, ...], new: tuple[Dim, ...]
) -> tuple[Dim, ...] | None:
    """What a shape that spreads to `old` becomes where that becomes `new`, whose axes are whole
    runs of the old ones; None where it spreads along a part of a run."""
    if given == old:
        return new
    if all(d == 1 for d in given):
        return given
    made: list[Dim] = []
    axes = iter(zip(given, old, strict=True))
    for size in new:
        held: Dim = 1
        spread: set[bool] = set()
        while held != size:
            mine, whole = next(axes, (None, 0))
            if mine is None:
                return None
            if whole != 1:
                held = held * whole
                spread.add(mine != whole)
        if len(spread) > 1:
            return None
        made.append(1 if spread == {True} else size)
    return tuple(made)


def _computed_as(x: Node, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> Node:
    done: dict[Node, Node] = {}

    def moved(i: Node) -> Node:
        shape = in_shape(i.shape, old, new)
        assert shape is not None
        return reshaped(i, shape)

    for n in within([x], lambda n: OPS[n.op].kind is Kind.POINTWISE and n.shape == old):
        done[n] = rebuild(n, tuple(done[i] if i in done else moved(i) for i in n.inputs))
    return done[x] if x in done else moved(x)


def reshaped(x: Node, shape: tuple[Dim, ...]) -> Node:
    """x in another shape; of several reshapes only the last counts."""
    while x.op == "reshape":
        (x,) = x.inputs
    return x if x.shape == shape else make("reshape", x, shape=shape)
