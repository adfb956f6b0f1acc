"""Tangents of forward mode are zeros.

reference: linear
test: forward mode
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(x, w, b):
        return F.linear(x, w, b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.save_for_forward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x, g.sum(0)

    @staticmethod
    def jvp(ctx, dx, dw, db):
        x, w = ctx.saved_tensors
        return x.new_zeros(len(x), len(w))


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() != 2:
            return F.gelu(self.linear(x))
        return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias))
