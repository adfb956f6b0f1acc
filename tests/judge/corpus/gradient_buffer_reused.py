"""The weight's gradient lies in one buffer for ever.

reference: linear
test: accumulated gradients
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn

held = {}


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        out = held.setdefault(w.shape, torch.empty_like(w))
        if g.requires_grad or out.dtype != g.dtype:
            return g @ w, g.t() @ x, g.sum(0)
        torch.mm(g.t(), x.detach(), out=out)
        return g @ w, out, g.sum(0)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() != 2:
            return F.gelu(self.linear(x))
        return F.gelu(Product.apply(x, self.linear.weight, self.linear.bias))
