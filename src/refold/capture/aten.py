"""Every ATen handler: importing this module fills the registry."""

from refold.capture import (
    aten_attention,
    aten_cell,
    aten_conv,
    aten_encoder,
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
    "aten_attention",
    "aten_cell",
    "aten_conv",
    "aten_encoder",
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

# other names of the same operators, with the same arguments: torch.export keeps them
NAMES = {
    "abs": ("absolute",),
    "cat": ("concatenate",),
    "clamp": ("clip",),
    "div": ("divide",),
    "erf": ("special_erf",),
    "expm1": ("special_expm1",),
    "ge": ("greater_equal",),
    "gt": ("greater",),
    "le": ("less_equal",),
    "log1p": ("special_log1p",),
    "log_softmax": ("special_log_softmax",),
    "logsumexp": ("special_logsumexp",),
    "lt": ("less",),
    "matmul": ("linalg_matmul",),
    "mul": ("multiply",),
    "ne": ("not_equal",),
    "neg": ("negative",),
    "sigmoid": ("special_expit",),
    "softmax": ("special_softmax",),
    "sub": ("subtract",),
    "trunc": ("fix",),
}
HANDLERS |= {other: HANDLERS[name] for name, others in NAMES.items() for other in others}
