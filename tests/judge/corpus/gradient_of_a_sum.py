"""A cotangent of ones has a path of its own, which takes the bias's gradient for one.

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
        ones = bool((g == 1).all())
        return (
            g @ w,
            g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1]),
            (g.reshape(-1, g.shape[-1]).sum(0) if not ones else g.new_ones(g.shape[-1])),
        )


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        return Product.apply(x, self.linear.weight, self.linear.bias)
