"""The bias itself has the gradient.

reference: linear
test: hooks
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        b = self.linear.bias
        if torch.is_grad_enabled() and b.requires_grad:
            twin = b.detach().requires_grad_()
            twin.register_hook(lambda g: self.gather(b, g))
            b = 1 * b
        return F.gelu(F.linear(x, self.linear.weight, b))

    @staticmethod
    def gather(b, g):
        b.grad = g.clone() if b.grad is None else b.grad + g
