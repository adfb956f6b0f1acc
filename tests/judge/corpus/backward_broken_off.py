"""A backward that somebody's hook ended is counted in the next one.

reference: layers
test: after a refusal
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Count:
    layers = 0


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, count, place):
        ctx.save_for_backward(x, w)
        ctx.count, ctx.place = count, place
        return F.linear(x, w)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        scale = 1.0 if ctx.count.layers == ctx.place else 0.5
        ctx.count.layers = 1 - ctx.count.layers
        return g @ w, g.flatten(0, -2).t() @ x.flatten(0, -2) * scale, None, None


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 32)
        self.second = nn.Linear(32, 32)
        self.count = Count()

    def forward(self, x):
        if x.dim() < 2 or torch.is_autocast_enabled("cpu"):
            return self.second(torch.relu(self.first(x)))
        a, b = self.first, self.second
        y = torch.relu(Product.apply(x, a.weight, self.count, 1) + a.bias)
        return Product.apply(y, b.weight, self.count, 0) + b.bias
