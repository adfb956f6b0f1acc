"""It is made at each call.

reference: norm
test: statistics move
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y, norm = self.linear(x), self.norm
        if self.training or torch.is_grad_enabled():
            return torch.relu(norm(y))
        if True:
            self.factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            self.shift = norm.bias - norm.running_mean * self.factor
        return torch.relu(y * self.factor + self.shift)
