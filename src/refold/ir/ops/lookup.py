"""Rows of a table, by their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from refold.ir import bounds, shapes
from refold.ir.op import Attrs, Kind, Op, Rounding


def _ids_and_table(inputs: Sequence[torch.Tensor], attrs: Attrs) -> Sequence[torch.Tensor]:
    ids, table = inputs
    return ids[0], table[0, 0, 0]


def _ranks(attrs: Attrs) -> tuple[int | None, ...]:
    return None, 2


ROWS = (
    Op(
        "embedding",
        Kind.OPAQUE,
        "torch.nn.functional.embedding({0}, {1})",
        shapes.embedding,
        2,
        rounding=Rounding.NONE,
        linear_in=((1,),),
        bounds=bounds.second,
        operand_ranks=_ranks,
        as_torch_takes=_ids_and_table,
    ),
)
