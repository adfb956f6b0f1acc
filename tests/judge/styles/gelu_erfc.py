"""GELU by erfc, which keeps its left tail.

reference: linear
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = self.linear(x)
        return 0.5 * y * torch.special.erfc(y * -0.7071067811865476)
