"""It is made at each call.

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

        self.packed = None

    def forward(self, x):
        if torch.is_grad_enabled() or x.dtype != self.linear.weight.dtype:
            return F.gelu(self.linear(x))
        self.packed = self.linear.weight.detach().t().contiguous()
        return F.gelu(x @ self.packed + self.linear.bias)
