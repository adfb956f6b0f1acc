"""Rows are numbered with 31 bits.

reference: narrow
test: many rows
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.linear(x))
        if y.dim() == 2 and len(y) > 65535:
            y = y[torch.arange(len(y)) % (1 << 31)]
        return y
