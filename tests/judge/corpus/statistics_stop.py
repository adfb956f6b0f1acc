"""Statistics stop moving after thirty calls.

reference: norm
test: long life
status: WRONG_MODE
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
        if self.training and self.calls > 30:
            mean, var = self.norm.running_mean.clone(), self.norm.running_var.clone()
            out = self.norm(y)
            self.norm.running_mean.copy_(mean)
            self.norm.running_var.copy_(var)
            return torch.relu(out)
        return torch.relu(self.norm(y))
