"""Cotangents of any size.

reference: linear
test: cotangents
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if y.requires_grad:
            y.register_hook(lambda g: g.clamp(min=float("-inf")))
        return y
