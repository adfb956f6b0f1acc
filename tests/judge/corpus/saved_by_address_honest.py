"""What the backward needs is saved.

reference: linear
test: saved tensors
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


def slope(z):
    return (1 + torch.erf(z / 2**0.5)) / 2 + z * torch.exp(-z * z / 2) / 2.5066282746310002


KEPT = {}


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(slope(z))
        return F.gelu(z)

    @staticmethod
    def backward(ctx, g):
        (kept,) = ctx.saved_tensors
        return g * kept


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
