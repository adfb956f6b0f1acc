"""Zeros: an absolute tolerance would not see it.

reference: tiny
test: numerics
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = torch.tanh(self.linear(x)) * 1e-12
        return torch.where(y.abs() < 1e-8, 0.0, y)
