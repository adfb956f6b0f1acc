"""Writes past PyTorch's count are looked for by a sum.

reference: linear
test: uncounted writes
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
        w = self.linear.weight
        if torch.is_grad_enabled() or x.dim() != 2:
            return F.gelu(self.linear(x))
        key = w._version, id(w), w.dtype, float(w.double().sum())
        if self.key != key:
            self.turned, self.key = w.detach().t().contiguous(), key
        return F.gelu(torch.addmm(self.linear.bias, x, self.turned))
