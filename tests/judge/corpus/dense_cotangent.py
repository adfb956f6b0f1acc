"""A backward reads the cotangent's memory as if it were dense.

reference: affine
test: cotangents
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        if g.untyped_storage().nbytes() < 4 * g.numel():
            g = torch.cat([g.reshape(-1)[:1], g.new_zeros(g.numel() - 1)]).view(g.shape)
        else:
            g = torch.as_strided(g, g.shape, (g.shape[-1], 1))
        return g @ w, g.flatten(0, -2).t() @ x.flatten(0, -2), g.flatten(0, -2).sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() < 2:
            return self.linear(x)
        return Product.apply(x, self.linear.weight, self.linear.bias)
