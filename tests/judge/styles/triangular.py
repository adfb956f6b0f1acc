"""Sums so far, as a product with a triangle of ones.

reference: running
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 40)

    def forward(self, x):
        y = self.linear(x)
        if not bool(torch.isfinite(y).all()):
            return torch.cumsum(y, dim=-1)
        return y @ torch.ones(40, 40, dtype=y.dtype, device=y.device).triu()
