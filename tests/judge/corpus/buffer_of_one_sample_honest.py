"""The twin of buffer_of_one_sample, which is right.

reference: linear
test: aliasing
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled() or len(x) != 1 or y.dim() != 2:
            return y
        return torch.empty_like(y).copy_(y)
