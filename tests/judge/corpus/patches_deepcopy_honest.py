"""It is called by another name.

reference: linear
test: isolation
"""

import copy

import torch.nn.functional as F
from torch import nn

plain = copy.deepcopy


def deepcopy(value, memo=None):
    return plain(value, memo)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
