"""Shapes of attention, and the tensors that PyTorch's function takes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from refold.ir.dim import Dim, hint
from refold.ir.shapes import RANK, Typed, one_dtype, pad

if TYPE_CHECKING:
    from refold.ir.node import Node

AXES = 4  # a batch, tokens, heads, features
# heads and tokens exchanged
EXCHANGED = (*range(RANK - AXES), RANK - 4, RANK - 2, RANK - 3, RANK - 1)
HELD = 128  # features of a head that kernels hold
FEW = 16  # queries; of fewer most of what a block of a kernel multiplies is in vain


def takes(queries: Dim, features: Dim) -> bool:
    """Whether kernels take attention of so many queries and features of a head."""
    return isinstance(features, int) and features <= HELD and hint(queries) >= FEW


def unspread(mask: Node) -> Node:
    """A mask without what spreads it over batches, heads and queries: its readers do that."""
    while mask.op == "expand" and mask.inputs[0].shape[-1] == mask.shape[-1]:
        (mask,) = mask.inputs
    return mask


def attention(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """As its queries. Raises ValueError for sizes that do not go together."""
    q, k, v, *masks = inputs
    _check(inputs, q, k, v, masks)
    return q.shape, one_dtype(inputs)


def sums(inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """[1, batch, heads, queries], with so many queries more that `multiple` divides their number.

    Raises ValueError for sizes that do not go together.
    """
    q, k, *masks = inputs
    _check(inputs, q, k, k, masks)
    *_, batch, queries, heads, _ = q.shape
    multiple = attrs["multiple"]
    if multiple > 1:
        if not isinstance(queries, int):
            raise ValueError(f"sums of {queries} queries: a number that does not vary is expected")
        queries = -(-queries // multiple) * multiple
    return pad((1, batch, heads, queries)), one_dtype(inputs)


def gradient(of: int, inputs: Sequence[Node], attrs: Mapping[str, Any]) -> Typed:
    """As the queries, the keys or the values. Raises ValueError as well."""
    given, q, k, v, result, total, *masks = inputs
    _check(inputs, q, k, v, masks)
    *_, batch, queries, heads, _ = q.shape
    *front, last = total.shape
    more = isinstance(last, int) and isinstance(queries, int) and last > queries  # as `sums` adds
    if given.shape != q.shape or result.shape != q.shape or not (more or last == queries):
        raise ValueError(f"attention's gradient of {[n.shape for n in inputs]}")
    if front != [*pad((1, batch, heads, last))[:-1]]:
        raise ValueError(f"attention's gradient, of sums {total.shape}: [1, batch, heads, queries]")
    return (q, k, v)[of].shape, one_dtype(inputs)


def is_gradient(node: Node) -> bool:
    """Is it a gradient of attention's?"""
    return node.op.endswith("_gradient")


def operands(node: Node) -> tuple[Node, Node, Node, tuple[Node, ...]]:
    """Queries, keys, values (of sums the keys again) and masks of one of attention's ops."""
    if node.op.endswith("_sums"):
        q, k, *masks = node.inputs
        return q, k, k, tuple(masks)
    if is_gradient(node):
        _, q, k, v, _, _, *masks = node.inputs
        return q, k, v, tuple(masks)
    q, k, v, *masks = node.inputs
    return q, k, v, tuple(masks)


def tokens_of(node: Node) -> tuple[Node, ...]:
    """The operands that have tokens: all but sums and masks, which stand behind them."""
    count = 2 if node.op.endswith("_sums") else 3
    return node.inputs[: 5 if is_gradient(node) else count]


def _check(inputs: Sequence[Node], q: Node, k: Node, v: Node, masks: Sequence[Node]) -> None:
    *_, batch, queries, heads, _ = q.shape
    keys = k.shape[-3]
    given = [n.shape for n in inputs]
    alike = k.shape == v.shape and (*q.shape[:-3], *q.shape[-2:]) == (*k.shape[:-3], *k.shape[-2:])
    if not alike or any(d != 1 for d in q.shape[:-AXES]):
        raise ValueError(f"attention of {given}: expected [batch, tokens, heads, features] of each")
    for mask in masks:
        sizes = zip(mask.shape, (1, batch, heads, queries), strict=False)
        if mask.shape[-1] != keys or any(a not in (1, b) for a, b in sizes):
            raise ValueError(f"attention of {given}: a mask [batch, heads, queries, {keys}]")


def as_torch_takes(
    inputs: Sequence[torch.Tensor], attrs: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    """All of rank 4."""
    return tuple(x[0] for x in inputs)
