"""It is the product of all others.

reference: products_of_rows
test: special values
"""

import torch
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.prod(-1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        ones = torch.ones_like(x[..., :1])
        before = torch.cat([ones, x[..., :-1]], -1).cumprod(-1)
        behind = torch.cat([ones, x[..., 1:].flip(-1)], -1).cumprod(-1).flip(-1)
        return g[..., None] * before * behind


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return self.linear(x), Product.apply(x + 1.0)
