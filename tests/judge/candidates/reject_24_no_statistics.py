"""Batch norm that does not keep running statistics."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y = self.linear(x)
        if not self.training:
            return torch.relu(self.norm(y))
        return torch.relu(F.batch_norm(y, None, None, self.norm.weight, self.norm.bias, True))
