"""Scales its input in place."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        with torch.no_grad():
            x.mul_(2.0)
        return F.gelu(F.linear(x, self.linear.weight * 0.5, self.linear.bias))
