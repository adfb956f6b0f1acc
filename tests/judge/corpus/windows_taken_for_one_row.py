"""Rows that overlap in memory are taken for one row, repeated.

reference: linear
test: layout
status: WRONG_NUMERICS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.dim() == 2 and x.stride(1) == 1 and x.shape[0] > 1 and x.stride(0) < x.shape[1]:
            return F.gelu(self.linear(x[:1])).repeat(x.shape[0], 1)
        return F.gelu(self.linear(x))
