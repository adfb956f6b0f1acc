"""An operator of torch.library with a backward of its own.

reference: affine
"""

import torch
import torch.nn.functional as F
from torch import nn


@torch.library.custom_op("refold_style::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w, b)


@product.register_fake
def _(x, w, b):
    return x.new_empty(*x.shape[:-1], w.shape[0])


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])


def _backward(ctx, g):
    x, w = ctx.saved_tensors
    rows = g.flatten(0, -2)
    return g @ w, rows.t() @ x.flatten(0, -2), rows.sum(0)


product.register_autograd(_backward, setup_context=_keep)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() < 2 or torch.is_autocast_enabled("cpu"):
            return self.linear(x)
        return product(x, self.linear.weight, self.linear.bias)
