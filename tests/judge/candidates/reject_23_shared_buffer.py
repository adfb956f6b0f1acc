"""One output buffer for all calls of a shape."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

        self.buffers = {}

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled():
            return y
        return self.buffers.setdefault(y.shape, torch.empty_like(y)).copy_(y)
