"""Large folds in parts. What a fold makes of a whole weight in float64 is new memory, twice the
weight's and more, and that takes longer than the arithmetic; what it makes of a part stays in a
cache. PyTorch gives operations on so little to one thread: where another process has a processor,
threads that wait for each other at each of them take longer than one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from refold.codegen.text import leaf_shape, stripped
from refold.ir import Kind, Node
from refold.ir.graph import topological
from refold.ir.node import leaf, make, rebuild
from refold.ir.shapes import RANK
from refold.plan import Fold

LARGE = 4 * 2**20  # elements that are read, from which on a fold is made in parts
_MOST = 2**15  # elements from which on PyTorch shares an operation out among threads
_LEAST = 2**12  # elements of a part: with fewer, Python takes longer than the arithmetic
_RUN = 64  # elements that lie one after the other in what a part reads
_READ_AGAIN = 16  # what each part reads as a whole is so many times less than a part

# axes that are cut, each with the length of a part, and which of the result's cuts it comes from
Cuts = tuple[tuple[int, int, int], ...]
Place = tuple[int, int]  # an axis, and the length of a part of it


@dataclass(frozen=True)
class Parts:
    """node: what is computed of each part. leaves: what it reads, by what the fold reads, each with
    its cuts. cuts: those of the result. counts: how many parts each cut makes. Axes are counted in
    memory."""

    node: Node
    leaves: Mapping[Node, tuple[Node, Cuts]]
    cuts: Cuts
    counts: tuple[int, ...]


def with_means(root: Node) -> Node:
    """The same value, where the pooling of windows that lie side by side is a mean over an axis of
    their own: PyTorch's pooling copies what does not lie in order, and takes one number at a time.
    """
    new: dict[Node, Node] = {}
    for node in topological([root]):
        inputs = tuple(new[i] for i in node.inputs)
        new[node] = _shorter(rebuild(node, inputs))
        if node.op == "avg_pool" and _is_side_by_side(node):
            (x,) = inputs
            order = x["order"] if x.op == "permute" else None
            x = x if order is None else x.inputs[0]  # what lies in memory
            axis = RANK - 1 if order is None else order[RANK - 1]
            if axis > 0 and x.shape[0] == 1:
                mean = _mean_of_windows(x, axis, node["size"])
                new[node] = mean if order is None else make("permute", mean, order=order)
    return new[root]


def _shorter(node: Node) -> Node:
    """One move for two of a kind, none for one that changes nothing."""
    if node.op == "permute" and node.inputs[0].op == "permute":
        (inner,) = node.inputs
        order = tuple(inner["order"][i] for i in node["order"])
        node = make("permute", inner.inputs[0], order=order)
    if node.op == "permute" and node["order"] == tuple(range(RANK)):
        return node.inputs[0]
    return node


def _mean_of_windows(x: Node, axis: int, size: int) -> Node:
    shape = _sizes(x)
    count = shape[axis] // size
    windows = (*shape[1:axis], count, size, *shape[axis + 1 :])
    mean = make("mean", make("reshape", x, shape=windows), axes=(axis - RANK,))
    return make("reshape", mean, shape=(*shape[:axis], count, *shape[axis + 1 :]))


def _is_side_by_side(pool: Node) -> bool:
    plain = pool["size"] == pool["stride"] and pool["padding"] == 0
    return bool(plain and pool.inputs[0].shape[-1] == pool["size"] * pool.shape[-1])


def parts_of(fold: Fold, node: Node) -> Parts | None:
    """How a fold is computed in parts; None for one that is small, or that is no parts side by
    side. node: what it computes, as `with_means` gives it."""
    order = topological([node])
    if not all(isinstance(d, int) for n in order for d in n.shape):
        return None
    if sum(_elements(n, ()) for n in fold.sources) < LARGE:
        return None
    found = next((c for c in _ways(order) if _suits(c)), None)
    if found is None:
        return None
    new, cuts, whole = _rebuilt(order, found), found[node], _sizes(node)
    leaves = {n: (new[n], _in_memory(found[n], len(leaf_shape(n)))) for n in fold.sources}
    counts = tuple(whole[axis] // length for axis, length, _ in cuts)
    return Parts(new[node], leaves, _in_memory(cuts, len(stripped(node.shape, 1))), counts)


def _in_memory(cuts: Cuts, rank: int) -> Cuts:
    return tuple((axis - (RANK - rank), length, i) for axis, length, i in cuts)


def _ways(order: Sequence[Node]) -> Iterator[dict[Node, Cuts]]:
    """The ways to cut a fold: along one axis of the result, or along two, of which the first is cut
    as small as can be. Larger parts come first."""
    single: dict[int, list[int]] = {}
    for axis, size in enumerate(_sizes(order[-1])):
        for length in (n for n in range(size - 1, 0, -1) if size % n == 0):
            places = _places(order, ((axis, length, 0),))
            if places is not None:
                single.setdefault(axis, []).append(length)
                yield places
    for first, second in itertools.permutations(single, 2):
        for length in single[second]:
            cuts = (first, single[first][-1], 0), (second, length, 1)
            places = _places(order, cuts)
            if places is not None:
                yield places


def _suits(places: Mapping[Node, Cuts]) -> bool:
    leaves = [(n, cuts) for n, cuts in places.items() if n.kind is Kind.LEAF]
    read = sum(_elements(n, cuts) for n, cuts in leaves if cuts)
    again = sum(_elements(n, cuts) for n, cuts in leaves if not cuts)
    in_runs = all(_run(n, cuts) >= _RUN for n, cuts in leaves if _elements(n, cuts) >= _LEAST)
    small = max(_elements(n, cuts) for n, cuts in places.items()) < _MOST
    return small and in_runs and read >= max(_LEAST, again * _READ_AGAIN)


def _sizes(node: Node) -> tuple[int, ...]:
    """Its shape, of which every size is known."""
    return tuple(d if isinstance(d, int) else d.hint for d in node.shape)


def _part_shape(node: Node, cuts: Cuts) -> tuple[int, ...]:
    shape = list(_sizes(node))
    for axis, length, _ in cuts:
        shape[axis] = length
    return tuple(shape)


def _elements(node: Node, cuts: Cuts) -> int:
    return math.prod(_part_shape(node, cuts))


def _run(node: Node, cuts: Cuts) -> int:
    """How many elements of a part lie one after the other in memory."""
    shape = _part_shape(node, cuts)
    for axis in reversed(range(RANK)):
        if shape[axis] != node.shape[axis]:
            return math.prod(shape[axis:])
    return math.prod(shape)


def _places(order: Sequence[Node], root: Cuts) -> dict[Node, Cuts] | None:
    """Of each value the part that a part of the last one is made of, without cuts the whole; None
    where some value is needed in two ways, or where nobody knows."""
    places: dict[Node, Cuts] = {order[-1]: root}
    for node in reversed(order):
        for value in node.inputs:
            found = [
                (_input_axis(node, value, axis, length), i) for axis, length, i in places[node]
            ]
            if any(place == () for place, _ in found):
                return None
            cuts = tuple((*place, i) for place, i in found if place is not None)
            if places.setdefault(value, cuts) != cuts:
                return None
    return places


def _input_axis(node: Node, value: Node, axis: int, length: int) -> Place | tuple[()] | None:
    """The axis of an input that is cut where a node's is, and the length of its parts; None where
    all of it is read, () where nobody knows."""
    if node.kind is Kind.POINTWISE or node.op == "expand":
        return None if value.shape[axis] == 1 else (axis, length)
    if node.kind is Kind.REDUCE:
        return axis, length  # no axis of size 1 is cut
    if node.op == "permute":
        return node["order"][axis], length
    if node.op == "reshape":
        return _reshaped_axis(node.shape, value.shape, axis, length)
    return ()


def _reshaped_axis(
    shape: Sequence[Any], old: Sequence[Any], axis: int, length: int
) -> Place | tuple[()]:
    """A part of an axis of one shape is a part of an axis of another if the axes before it make as
    many in both, and if it is whole rows of the other."""
    run = length * math.prod(shape[axis + 1 :])
    for other, size in enumerate(old):
        row = math.prod(old[other + 1 :])
        if size > 1 and math.prod(old[:other]) == math.prod(shape[:axis]):
            return (other, run // row) if run % row == 0 else ()
    return ()


def _rebuilt(order: Sequence[Node], places: Mapping[Node, Cuts]) -> dict[Node, Node]:
    """What computes a part of each value."""
    new: dict[Node, Node] = {}
    for node in order:
        shape, attrs = _part_shape(node, places[node]), dict(node.attrs)
        inputs = tuple(new[i] for i in node.inputs)
        if not places[node]:
            new[node] = node
        elif node.kind is Kind.LEAF:
            new[node] = leaf(node.op, shape, node.dtype, **attrs)
        elif "shape" in attrs:
            new[node] = make(node.op, *inputs, **{**attrs, "shape": shape})
        else:
            new[node] = rebuild(node, inputs)
        assert new[node].shape == shape
    return new
