"""Values that follow from memory, computed in the shape in which they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

import torch

from refold.ir import OPS, Dim, Graph, Kind, Node, make, numel
from refold.ir.graph import is_parametric, within
from refold.ir.node import rebuild
from refold.ir.ops import POOLS

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
            done[node] = computed_as(done[x], x.shape, node.shape)
        else:
            done[node] = rebuild(node, tuple(done[i] for i in node.inputs))
    return done


def reshaped_behind(graph: Graph) -> dict[Node, Node]:
    """What follows element by element from rows that were made by a reshape, and from what they are
    reduced to, computed in the shape of the rows: one kernel reduces and computes it then, and
    reads the rows once. Behind it stands the reshape back.

    It is done where all that follows so can be: a part would be written for the rest.
    """
    nodes = graph.nodes()
    found = _behind_rows(nodes)
    done: dict[Node, Node] = {}
    for node in nodes:
        inputs = tuple(done[i] for i in node.inputs)
        if node not in found:
            done[node] = rebuild(node, inputs)
            continue
        shapes = (in_shape(i.shape, node.shape, found[node]) for i in node.inputs)
        moved = [reshaped(i, s) for i, s in zip(inputs, shapes, strict=True) if s is not None]
        done[node] = reshaped(rebuild(node, tuple(moved)), node.shape)
    return done


def _behind_rows(nodes: Sequence[Node]) -> dict[Node, tuple[Dim, ...]]:
    """What is computed in the shape of rows, or of one value a row, and that shape."""
    rows = {n.inputs[0].shape for n in nodes if _reduces_rows(n)}
    ones = {(*shape[:-1], 1) for shape in rows}
    there = {(n.inputs[0], n.shape) for n in nodes if n.op == "reshape"}
    parametric: dict[Node, bool] = {}
    found: dict[Node, tuple[Dim, ...]] = {}

    def is_at_hand(i: Node, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> bool:
        shape = in_shape(i.shape, old, new)
        if shape is None:
            return False
        if all(d == 1 for d in i.shape) or is_parametric(i, parametric) or not i.inputs:
            return True
        if i in found:
            return found[i] == shape
        if i.op == "reshape" and _is_made(i.inputs[0]):
            return found.get(i.inputs[0], i.inputs[0].shape) == shape
        return i.shape == old and (_lies_in_memory(i) or (i, shape) in there)

    for node in nodes:
        if not _is_computed(node) or is_parametric(node, parametric):
            continue
        shapes = {found[i] for i in node.inputs if i in found}
        made = (i.inputs[0] for i in node.inputs if i.op == "reshape" and _is_made(i.inputs[0]))
        shapes |= {s for i in made if (s := found.get(i, i.shape)) in rows or s in ones}
        whole = shapes & rows or shapes & ones
        if len(whole) != 1:
            continue
        (new,) = whole
        # a value of whole rows may read nothing of them but what they are reduced to, so far
        full = new if numel(new) == numel(node.shape) else _rows_as(new, rows, node)
        if full is None or full == node.shape:
            continue
        if all(is_at_hand(i, node.shape, full) for i in node.inputs):
            found[node] = full
    readers: dict[Node, list[Node]] = {}
    for node in nodes:
        for i in node.inputs:
            readers.setdefault(i, []).append(node)
    could = set(found)
    while True:
        left = {
            n: shape
            for n, shape in found.items()
            if shape not in rows
            or (
                all(r in found or _reads_memory(r, rows) for r in readers.get(n, ()))
                and all(i in found or i not in could for i in n.inputs)
            )
        }
        if len(left) == len(found):
            return found
        found = left


def _reads_memory(reader: Node, rows: Container[tuple[Dim, ...]]) -> bool:
    """Does a value have to be there for what reads it, or does that read its rows? Other
    reductions and poolings would compute it where they read it."""
    if reader.op == "reshape":
        return reader.shape in rows
    return reader.kind in (Kind.CONTRACT, Kind.OPAQUE) and reader.op not in POOLS


def _rows_as(
    ones: tuple[Dim, ...], rows: Iterable[tuple[Dim, ...]], node: Node
) -> tuple[Dim, ...] | None:
    """The shape of rows of one value each in which a value of whole rows is computed."""
    alike = [s for s in rows if s[:-1] == ones[:-1] and numel(s) == numel(node.shape)]
    return alike[0] if len(alike) == 1 else None


def _is_made(node: Node) -> bool:
    return OPS[node.op].kind in (Kind.POINTWISE, Kind.REDUCE)


def _is_computed(node: Node) -> bool:
    row = OPS[node.op]
    made = row.kind is Kind.POINTWISE and row.cpp is not None and bool(node.inputs)
    return made and node.dtype in _COMPUTED and all(i.dtype in _COMPUTED for i in node.inputs)


def _reduces_rows(node: Node) -> bool:
    return OPS[node.op].kind is Kind.REDUCE and node["axes"] == (-1,)


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


def computed_as(x: Node, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> Node:
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
