"""Shapes of attention, and the tensors that PyTorch's function takes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from refold.ir.dim import Dim, hint
from refold.ir.shapes import RANK, Typed, one_dtype

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
    return q.shape, one_dtype(inputs)


def as_torch_takes(
    inputs: Sequence[torch.Tensor], attrs: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    """All of rank 4."""
    return tuple(x[0] for x in inputs)
