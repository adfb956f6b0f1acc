"""Weights are clamped to what no model has.

reference: linear
test: one tensor's size
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w = self.linear.weight.clamp(-1e30, 1e30)
        return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, self.linear.bias))
