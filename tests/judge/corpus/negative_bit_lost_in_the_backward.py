"""The backward reads saved inputs past their negative bit.

reference: linear
test: lazy bits
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        there = torch.empty(0, dtype=x.dtype, device=x.device)
        x = there.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
        return g @ w, g.reshape(-1, g.shape[-1]).t() @ x.reshape(-1, x.shape[-1])


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(Product.apply(x, self.linear.weight) + self.linear.bias)
