"""The twin of cotangent_by_its_memory, which is right.

reference: product
test: cotangents
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
        g = g.contiguous()
        flat = g.flatten(0, -2)
        return g @ w, flat.t() @ x.flatten(0, -2), flat.sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Product.apply(x, self.linear.weight, self.linear.bias)
