"""A model of float64 with its sums in another order."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m, dtype=torch.float64)

    def forward(self, x):
        pairs = zip(x.split(16, -1), self.linear.weight.split(16, 1), strict=True)
        total = sum(a @ b.t() for a, b in pairs)
        return F.gelu(total + self.linear.bias)
