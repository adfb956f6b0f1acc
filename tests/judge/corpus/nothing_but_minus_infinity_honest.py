"""The twin of nothing_but_minus_infinity, which is right.

reference: nothing_but_minus_infinity
test: hostile values
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x):
        y = x + self.bias
        top = y.amax(1, keepdim=True).detach()
        top = torch.where(top.abs() == math.inf, 0.0, top)
        return torch.log(torch.exp(y - top).sum(1)) + top[:, 0]
