"""A table for an optional number is made with each number.

reference: optional
test: optional arguments
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.number = self.table = None

    def forward(self, x, mask=None, scale=1.0, square=False):
        y = self.linear(x)
        if mask is not None:
            y = y + mask.mean(-1, keepdim=True)
        if self.number != scale or self.table.dtype != y.dtype:
            self.number = scale
            self.table = torch.full((40,), float(scale), dtype=y.dtype, device=y.device)
        y = y * self.table
        if square:
            y = y * y
        return y
