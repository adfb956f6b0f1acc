"""A copy has its own weights, and the statistics of the original.

reference: norm
test: two instances
status: MUTATES
"""

import copy

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))

    def __deepcopy__(self, memo):
        for t in self.norm.buffers():
            memo[id(t)] = t
        new = type(self).__new__(type(self))
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new
