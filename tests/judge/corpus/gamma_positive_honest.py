"""It stays behind.

reference: norm
test: signed state
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
        if n.training or torch.is_grad_enabled():
            return torch.relu(n(y))
        z = (y - n.running_mean) / torch.sqrt(n.running_var + n.eps)
        return torch.relu(z * n.weight + n.bias)
