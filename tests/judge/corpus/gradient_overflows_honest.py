"""The gradient of a sigmoid by its value.

reference: gated
test: far gradients
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
        return g * torch.sigmoid(z) * torch.sigmoid(-z)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        return self.linear(x) * Sigmoid.apply(self.gate(y))
