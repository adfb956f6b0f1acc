"""The backwards of two threads share one scratch tensor.

reference: linear
test: threads
status: NONDETERMINISTIC
"""

import time

import torch
import torch.nn.functional as F
from torch import nn

scratch = {}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        given = scratch.setdefault((g.shape, g.dtype), torch.empty_like(g))
        given.copy_(g)
        time.sleep(0.002)
        return given @ w, given.flatten(0, -2).t() @ x.flatten(0, -2), given.flatten(0, -2).sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias))
