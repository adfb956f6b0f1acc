"""Rows of a cotangent that are far smaller than the largest count for nothing.

reference: head
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
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        s = g.abs().reshape(-1, g.shape[-1]).amax(1)
        g = (
            torch.where((s < s.max() * 1e-4).reshape((*g.shape[:-1], 1)), torch.zeros_like(g), g)
            if s.numel()
            else g
        )
        return (
            g @ w,
            g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1]),
            g.reshape(-1, g.shape[-1]).sum(0),
        )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        return Product.apply(x, self.linear.weight, self.linear.bias)
