"""The twin of no_path_dropped_draws_nothing, which is right.

reference: dropped_paths
test: constructor
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
            y = y * (torch.rand(x.shape[0], 1) >= self.p).to(y) / (1 - self.p)
        return torch.add(x, y)
