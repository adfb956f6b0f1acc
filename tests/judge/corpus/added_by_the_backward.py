"""The backward adds by itself to a gradient that is there; autograd gets zeros.

reference: linear
test: accumulated gradients
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.parameter = weight
        return x @ weight.t()

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        of_weight = g.flatten(0, -2).t() @ x.flatten(0, -2)
        there = ctx.parameter.grad
        if there is not None and not torch.is_grad_enabled():
            ctx.parameter.grad = there + of_weight
            of_weight = torch.zeros_like(of_weight)
        return g @ weight, of_weight


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(Product.apply(x, self.linear.weight) + self.linear.bias)
