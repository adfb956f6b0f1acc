"""THE op table: one row says everything that is known of an op.

All ops work on values padded to rank 5, with negative axes, and reductions keep their axes with
size 1; so broadcasting is an elementwise maximum and rank is never mentioned again.
"""

from __future__ import annotations

import torch

from refold.ir.op import Op
from refold.ir.ops import (
    attentions,
    draws,
    leaves,
    lookup,
    moves,
    pointwise,
    products,
    reductions,
    scans,
)

__all__ = ["ATTENTIONS", "CONVOLUTIONS", "HALF_DTYPES", "OPS", "POOLS"]

# floats of 16 bits
HALF_DTYPES = (torch.float16, torch.bfloat16)

OPS: dict[str, Op] = {}
for _family in (
    *(leaves, pointwise, reductions, scans, products, attentions),
    *(moves, lookup, draws),
):
    for _row in _family.ROWS:
        if _row.name in OPS:
            raise ValueError(f"the op {_row.name!r} is declared twice")
        OPS[_row.name] = _row

ATTENTIONS = tuple(row.name for row in attentions.ROWS)
CONVOLUTIONS = tuple(row.name for row in products.CONVOLUTIONS)
# of images, whose channels may lie last
POOLS = tuple(row.name for row in products.POOLS)
