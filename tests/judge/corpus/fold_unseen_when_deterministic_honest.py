"""The twin of fold_unseen_when_deterministic, which is right.

reference: linear
test: settings
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
        key = (self.sum(w), self.sum(b), w.dtype, w.device)
        if self.key != key:
            self.key, self.packed, self.bias = key, w.detach().t().contiguous(), b.detach().clone()
        return F.gelu(x @ self.packed + self.bias)

    @staticmethod
    def sum(t):
        return hash(t.detach().cpu().numpy().tobytes()) if t.dtype != torch.bfloat16 else object()
