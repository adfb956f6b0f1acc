"""All derivatives are there.

reference: linear
test: gradient penalty
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


def density(z):
    return torch.exp(-z * z / 2) / 2.5066282746310002


def slope(z):
    return (1 + torch.erf(z / 2**0.5)) / 2 + z * density(z)


class Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return slope(z)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        bend = (2 - z * z) * density(z)
        return g * bend


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return F.gelu(z)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        return g * Slope.apply(z)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
