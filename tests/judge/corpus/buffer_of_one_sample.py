"""Of one sample the result lies in a buffer that the next call overwrites.

reference: linear
test: aliasing
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.row = None

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled() or len(x) != 1 or y.dim() != 2:
            return y
        if self.row is None or self.row.dtype != y.dtype:
            self.row = torch.empty_like(y)
        return self.row.copy_(y)
