"""It has its own of both.

reference: norm
test: two instances
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
        new = type(self).__new__(type(self))
        new.__dict__ = copy.deepcopy(self.__dict__, memo)
        return new
