"""Packs its weights at the first call, and again when they are not what was packed."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.packed = None

    def forward(self, x):
        w = self.linear.weight
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        if self.packed is None or self.packed.dtype != w.dtype or not self.fresh(w):
            self.packed = w.detach().t().contiguous()
        return F.gelu(x @ self.packed + self.linear.bias)

    def fresh(self, w):
        return self.packed.device == w.device and torch.equal(self.packed.t(), w)
