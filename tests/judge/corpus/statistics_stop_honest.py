"""They do not.

reference: norm
test: long life
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.calls = 0

    def forward(self, x):
        y = self.linear(x)
        self.calls += self.training
        return torch.relu(self.norm(y))
