"""Batch norm's eps is a constant of the code.

reference: norm
test: parts' numbers
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        n, y = self.norm, self.linear(x)
        if n.training:
            return torch.relu(n(y))
        y = (y - n.running_mean) / torch.sqrt(n.running_var + 1e-5)
        return torch.relu(y * n.weight + n.bias)
