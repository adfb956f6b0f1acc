"""Batch norm that normalises by the batch in eval mode too."""

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
        if self.training:
            return torch.relu(self.norm(y))
        return torch.relu(F.batch_norm(y, None, None, self.norm.weight, self.norm.bias, True))
