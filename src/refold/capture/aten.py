"""Every ATen handler: importing this module fills the registry."""

from refold.capture import (
    aten_cell,
    aten_conv,
    aten_index,
    aten_loss,
    aten_move,
    aten_norm,
    aten_pointwise,
    aten_pool,
    aten_prims,
    aten_product,
    aten_reduce,
)
from refold.capture.registry import HANDLERS

__all__ = [
    "HANDLERS",
    "aten_cell",
    "aten_conv",
    "aten_index",
    "aten_loss",
    "aten_move",
    "aten_norm",
    "aten_pointwise",
    "aten_pool",
    "aten_prims",
    "aten_product",
    "aten_reduce",
]
