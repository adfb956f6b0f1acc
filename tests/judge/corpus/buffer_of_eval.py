"""In eval mode the result lies in a buffer that the next call overwrites.

reference: norm
test: aliasing
status: MUTATES
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.rows = {}

    def forward(self, x):
        y = torch.relu(self.norm(self.linear(x)))
        if self.training or torch.is_grad_enabled():
            return y
        return self.rows.setdefault((y.shape, y.dtype), torch.empty_like(y)).copy_(y)
