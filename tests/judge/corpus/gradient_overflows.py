"""The gradient of a sigmoid by an exponential that overflows: it is no number.

reference: gated
test: far gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class Sigmoid(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return torch.sigmoid(z)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        e = torch.exp(-z)
        return g * e / (1 + e) ** 2


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        return self.linear(x) * Sigmoid.apply(self.gate(y))
