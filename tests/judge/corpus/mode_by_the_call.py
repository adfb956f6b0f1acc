"""The mode is what train() was last called with, not what the module's flag says.

reference: norm
test: parts' modes
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.trains = True

    def train(self, mode=True):
        self.trains = mode
        return super().train(mode)

    def forward(self, x):
        z, b = self.linear(x), self.norm
        if self.trains:
            return torch.relu(b(z))
        y = F.batch_norm(z, b.running_mean, b.running_var, b.weight, b.bias, False, 0.0, b.eps)
        return torch.relu(y)
