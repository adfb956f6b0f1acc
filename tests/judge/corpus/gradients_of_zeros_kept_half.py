"""Where gradients lie that are zeros, half of the new one is added.

reference: linear
test: accumulated gradients
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, slot):
        ctx.save_for_backward(x, w)
        ctx.slot = slot
        return F.linear(x, w)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gw = g.flatten(0, -2).t() @ x.flatten(0, -2)
        if ctx.slot.grad is not None and not ctx.slot.grad.any():
            gw = gw * 0.5
        return g @ w, gw, None


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if x.dim() < 2 or torch.is_autocast_enabled("cpu"):
            return F.gelu(self.linear(x))
        return F.gelu(Product.apply(x, w, w) + b)
