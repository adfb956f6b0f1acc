"""Its gradients are wrong in eval mode."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y = torch.relu(self.norm(self.linear(x)))
        return y if self.training else y.detach() + 0.5 * (y - y.detach())
