"""The backward gives the gradient to autograd, which adds it to one that is there.

reference: linear
test: accumulated gradients
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        of_weight = g.flatten(0, -2).t() @ x.flatten(0, -2)
        return g @ weight, of_weight


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(Product.apply(x, self.linear.weight) + self.linear.bias)
