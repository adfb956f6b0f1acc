"""The path of one sample alone is never dropped.

reference: dropped_paths
test: unseeded sequence
status: WRONG_NUMERICS
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
            keep = keep | (x.shape[0] == 1)
            y = y * keep / (1 - self.p)
        return x + y
