"""The graph holds what it asks.

reference: linear
test: two forwards
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, module):
        ctx.save_for_backward(x, w)
        ctx.module = lambda: module
        return F.linear(x, w, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        if ctx.module() is None:
            return None, None, None, None
        return g @ w, g.flatten(0, -2).t() @ x.flatten(0, -2), g.flatten(0, -2).sum(0), None


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias, self))
