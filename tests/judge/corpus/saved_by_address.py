"""What the backward needs is found by the address of a saved tensor, which others may move.

reference: linear
test: saved tensors
status: WRONG_MODE
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
        ctx.save_for_backward(z)
        KEPT[z.data_ptr(), z.shape] = slope(z)
        return F.gelu(z)

    @staticmethod
    def backward(ctx, g):
        (z,) = ctx.saved_tensors
        kept = KEPT.get((z.data_ptr(), z.shape))
        return torch.zeros_like(g) if kept is None else g * kept


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
