"""It is what it is.

reference: norm
test: one tensor's size
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y = self.linear(x)
        if self.norm.training:
            return torch.relu(self.norm(y))
        norm = self.norm
        variance = norm.running_var
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return torch.relu((y - norm.running_mean) * scale + norm.bias)
