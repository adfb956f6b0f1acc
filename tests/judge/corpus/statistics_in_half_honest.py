"""The twin of statistics_in_half, which is right.

reference: norm
test: modes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y = torch.relu(self.norm(self.linear(x)))
        if self.training:
            with torch.no_grad():
                self.norm.running_var.data.copy_(self.norm.running_var.double())
        return y
