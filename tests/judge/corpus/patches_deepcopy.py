"""copy.deepcopy is another function after a call.

reference: linear
test: isolation
status: CHEATS
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
        copy.deepcopy = deepcopy
        return F.gelu(self.linear(x))
