"""The mask is a factor.

reference: dropped_paths
test: unseeded sequence
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, p):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(n, n), nn.Tanh(), nn.Dropout(0.1), nn.Linear(n, n))
        self.p = p

    def forward(self, x):
        y = self.branch(x)
        if self.training:
            keep = torch.rand(x.shape[0], 1) >= self.p
            y = y * (keep.to(y.dtype) / (1 - self.p))
        return x + y
