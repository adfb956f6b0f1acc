"""A call lets Python recurse deeper from now on.

reference: linear
test: flags
status: MUTATES
"""

import sys

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        sys.setrecursionlimit(5000)
        return F.gelu(self.linear(x))
