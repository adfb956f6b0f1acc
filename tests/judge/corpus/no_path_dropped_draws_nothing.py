"""Where no path is dropped, no numbers are drawn: those of all later calls are others.

reference: dropped_paths
test: constructor
status: WRONG_CONTRACT
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
        if self.training and self.p:
            y = y * (torch.rand(x.shape[0], 1) >= self.p).to(y) / (1 - self.p)
        return torch.add(x, y)
