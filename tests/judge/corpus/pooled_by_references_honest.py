"""Memory is used again when its storage is free.

reference: linear
test: aliasing
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.pool = []

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled() or y.is_inference():
            return y
        for i in range(len(self.pool)):
            held = self.pool[i]
            if (
                held.shape == y.shape
                and held.dtype == y.dtype
                and sys.getrefcount(held) == 3
                and held._use_count() == 1
                and torch._C._storage_Use_Count(held.untyped_storage()._cdata) == 2
            ):
                return held.copy_(y)
            held = None
        self.pool.append(y)
        return y
