"""Outputs of inputs that are not contiguous lie in memory that the next such call uses again.

reference: linear
test: kinds of inputs
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = {}

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if x.is_contiguous() or torch.is_grad_enabled():
            return y
        key = (tuple(y.shape), y.dtype)
        if key not in self.kept:
            self.kept[key] = torch.empty_like(y)
        return self.kept[key].copy_(y)
