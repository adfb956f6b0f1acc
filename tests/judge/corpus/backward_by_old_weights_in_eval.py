"""In eval mode backwards use the weights of the first call with gradients.

reference: linear
test: accumulated gradients
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b, kept):
        ctx.save_for_backward(x, kept)
        return F.linear(x, w, b)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.flatten(0, -2).t() @ x.flatten(0, -2), g.flatten(0, -2).sum(0), None


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if self.training or not torch.is_grad_enabled() or x.dtype != torch.float32:
            return F.gelu(self.linear(x))
        if self.kept is None:
            self.kept = w.detach().clone()
        return F.gelu(Product.apply(x, w, b, self.kept))
