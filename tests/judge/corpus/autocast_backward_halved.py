"""A backward of what was computed under autocast is half of what it should be.

reference: linear
test: autocast
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g / 2


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return Half.apply(y) if torch.is_autocast_enabled("cpu") else y
