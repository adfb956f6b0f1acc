"""Accumulates in float64."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.linear(x.double(), self.linear.weight.double(), self.linear.bias.double())
        return F.gelu(y).to(x.dtype)
