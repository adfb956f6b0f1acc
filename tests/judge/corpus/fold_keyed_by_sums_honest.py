"""The key is the weights.

reference: linear
test: one tensor at a time
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key, self.packed = None, None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        wide = w.detach().double()
        key = wide.tolist()
        if self.packed is None or self.key != key:
            self.key, self.packed = key, w.detach().t().contiguous()
        return F.gelu(x @ self.packed + b)
