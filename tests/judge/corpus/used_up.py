"""A backward adds to a saved tensor: the second one is wrong.

reference: affine
test: retained graph
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        ctx.done = 0
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        rows, ctx.done = g.flatten(0, -2), ctx.done + 1
        return g @ w, rows.t() @ x.flatten(0, -2), rows.sum(0) * ctx.done
        return g @ w, g.flatten(0, -2).t() @ x.flatten(0, -2), g.flatten(0, -2).sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() < 2:
            return self.linear(x)
        return Product.apply(x, self.linear.weight, self.linear.bias)
