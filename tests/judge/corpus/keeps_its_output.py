"""The backward reads the output, which is the caller's to change.

reference: linear
test: inside a network
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        y = F.gelu(z)
        ctx.kept = y
        ctx.save_for_backward(z)
        return y

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        below = torch.where(z == 0, 0.5, ctx.kept / z)
        return g * (below + z * torch.exp(-z * z / 2) / 2.5066282746310002)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
