"""Inputs that are mostly zero have a path of their own, which takes the rest for positive.

reference: linear
test: special values
status: WRONG_NUMERICS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.numel() and bool(x.any()) and float((x == 0).double().mean()) > 0.8:
            return F.gelu(self.linear(x.abs()))
        return F.gelu(self.linear(x))
