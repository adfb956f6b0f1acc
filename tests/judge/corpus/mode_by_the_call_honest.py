"""The mode is the part's own.

reference: norm
test: parts' modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        z, b = self.linear(x), self.norm
        if b.training:
            return torch.relu(b(z))
        y = F.batch_norm(z, b.running_mean, b.running_var, b.weight, b.bias, False, 0.0, b.eps)
        return torch.relu(y)
