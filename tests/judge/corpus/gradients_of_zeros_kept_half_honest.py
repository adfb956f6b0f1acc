"""The twin of gradients_of_zeros_kept_half, which is right.

reference: linear
test: accumulated gradients
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
