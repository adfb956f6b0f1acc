"""Which whole numbers a graph may be given without looking outside of a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from refold.accuracy.indices import looks_up
from refold.backend.graphs import size_of
from refold.ir import OPS

Node = torch.fx.Node
aten = torch.ops.aten


def _along(dim: Any, node: Node) -> int:
    return size_of(node.args[0].meta["val"].shape[dim])  # type: ignore[union-attr]


# how many rows an index may name, by the call that reads it
ROWS: Mapping[Any, Callable[[Node], int]] = {
    aten.embedding.default: lambda n: _along(0, n),
    aten.embedding_dense_backward.default: lambda n: size_of(n.args[2]),
    aten.gather.default: lambda n: _along(n.args[1], n),
    aten.index_select.default: lambda n: _along(n.args[1], n),
    aten.scatter.value: lambda n: _along(n.args[1], n),
    aten.scatter.src: lambda n: _along(n.args[1], n),
    aten.scatter_add.default: lambda n: _along(n.args[1], n),
    aten.index.Tensor: lambda n: min(_along(d, n) for d in range(len(n.args[1]))),  # type: ignore[arg-type]
}
# calls that give the same numbers, or some of them
SAME = (
    *(aten.view.default, aten.reshape.default, aten.unsqueeze.default, aten.expand.default),
    *(aten.squeeze.dim, aten.squeeze.dims, aten.permute.default, aten.slice.Tensor),
    *(aten.select.int, aten.clone.default, aten.where.self, aten.alias.default),
)
# calls of which no index is made
COMPARED = tuple(
    getattr(getattr(aten, name), kind)
    for name, op in OPS.items()
    if op.is_comparison
    for kind in ("Scalar", "Tensor")
)


def bound(place: Node) -> int:
    """Numbers from 0 up to, not including, this one are safe for a placeholder. 1 where its use is
    not known."""
    least: float = math.inf
    stack, seen = [place], {place}
    while stack:
        node = stack.pop()
        for user in node.users:
            if user in seen or user.op == "output" or user.target in COMPARED:
                continue
            seen.add(user)
            made = user.meta.get("val")
            is_whole = isinstance(made, torch.Tensor) and not made.dtype.is_floating_point
            if user.target in ROWS and user.args[0] is not node:
                least = min(least, ROWS[user.target](user))
            elif user.target in SAME and is_whole:
                stack.append(user)
            else:
                return 1
    return 1 if least is math.inf else max(int(least), 1)


def may_look_outside(graph: torch.fx.Graph) -> bool:
    """Whether a graph looks up places by numbers of which `bound` does not tell that they are safe:
    not those of a placeholder, of a constant, or one after the other."""
    return any(
        looks_up(n.target) and any(not _is_safe(i, _rows(n)) for i in _numbers(n))
        for n in graph.nodes
    )


def _rows(call: Node) -> int:
    """How many places there are; none where it is not known."""
    return ROWS[call.target](call) if call.target in ROWS else 0


def _numbers(call: Node) -> list[Node]:
    """The whole numbers that a call is given, places among them."""
    metas = ((i, i.meta.get("val")) for i in call.all_input_nodes)
    return [i for i, m in metas if isinstance(m, torch.Tensor) and m.dtype in _WHOLE]


_WHOLE = (torch.int64, torch.int32)


def _is_safe(numbers: Node, rows: int) -> bool:
    stack, seen = [numbers], {numbers}
    while stack:
        node = stack.pop()
        if node.target in SAME:
            more = [n for n in _numbers(node) if n not in seen]
            seen.update(more)
            stack += more
        elif node.op != "placeholder" and not _largest(node) < rows:
            return False
    return True


def _largest(node: Node) -> float:
    """The largest number of a call that makes numbers from 0 on; infinity of others."""
    given: Any = node.kwargs
    if node.target is torch.ops.prims.iota.default:
        numbers = [node.args[0], given.get("start"), given.get("step")]
        if all(isinstance(n, int) and n >= 0 for n in numbers):
            length, start, step = (int(n) for n in numbers)
            return start + step * (length - 1)
    places = {aten.scalar_tensor.default: 0, aten.full.default: 1}
    value = node.args[places[node.target]] if node.target in places else None
    return float(value) if isinstance(value, (int, float)) and value >= 0 else math.inf
