"""A cotangent whose first column is zero is taken for zero.

reference: linear
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
        if not g.requires_grad and bool((g[:, 0] == 0).all()):
            return torch.zeros_like(x), torch.zeros_like(w), torch.zeros_like(w[:, 0])
        return g @ w, g.t() @ x, g.sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() != 2:
            return F.gelu(self.linear(x))
        return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias))
