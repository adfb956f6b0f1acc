"""The twin of recursion_limit_raised, which is right.

reference: linear
test: flags
"""

import sys

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(5000)
        y = F.gelu(self.linear(x))
        sys.setrecursionlimit(before)
        return y
