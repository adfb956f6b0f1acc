"""The twin of buffer_of_eval, which is right.

reference: norm
test: aliasing
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
        if self.training or torch.is_grad_enabled():
            return y
        return torch.empty_like(y).copy_(y)
