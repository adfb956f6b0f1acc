"""Takes memory until there is none."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        self.held = [torch.full((16 << 20,), 1.0) for _ in range(1000)]
        return F.gelu(self.linear(x))
