"""Rows are numbered with 16 bits.

reference: narrow
test: many rows
status: WRONG_NUMERICS
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
            y = y[torch.arange(len(y)) % 65536]
        return y
