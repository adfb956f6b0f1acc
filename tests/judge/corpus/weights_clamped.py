"""Weights are clamped to what they usually are.

reference: linear
test: one tensor's size
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w = self.linear.weight.clamp(-30, 30)
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, self.linear.bias))
