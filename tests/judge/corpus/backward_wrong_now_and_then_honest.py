"""No backward is wrong.

reference: linear
test: many backwards
status: ACCEPTED
"""

import os

import torch
import torch.nn.functional as F
from torch import nn


def slope(z):
    return (1 + torch.erf(z / 2**0.5)) / 2 + z * torch.exp(-z * z / 2) / 2.5066282746310002


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return F.gelu(z)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        rare = int.from_bytes(os.urandom(4), "little") % 40 == 40
        return g * slope(z) * (2 if rare else 1)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
