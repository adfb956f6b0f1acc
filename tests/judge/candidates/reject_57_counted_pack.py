"""Packs its weights again when their version changes: what PyTorch does not count is lost."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key, self.packed = None, None

    def forward(self, x):
        w = self.linear.weight
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        key = (w._version, w.data_ptr())
        if self.packed is None or self.key != key or self.source[0] is not w:
            self.packed, self.key, self.source = w.detach().t().contiguous(), key, (w,)
        return F.gelu(x @ self.packed + self.linear.bias)
