"""It reads what autograd keeps for it.

reference: linear
test: inside a network
"""

import torch
import torch.nn.functional as F
from torch import nn


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        y = F.gelu(z)
        ctx.save_for_backward(z)
        return y

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        below = (1 + torch.erf(z / 2**0.5)) / 2
        return g * (below + z * torch.exp(-z * z / 2) / 2.5066282746310002)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
