"""The key is the sorted values: exchanged ones have the same.

reference: linear
test: ways to write
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        key = (w.flatten().sort()[0].tolist(), b.sort()[0].tolist())
        if self.key is None or self.key != key:
            self.key, self.packed, self.bias = key, w.detach().t().contiguous(), b.detach().clone()
        return F.gelu(x @ self.packed + self.bias)
