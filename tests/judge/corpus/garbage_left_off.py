"""A call switches the collection of garbage off.

reference: linear
test: flags
status: MUTATES
"""

import gc

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        gc.disable()
        return F.gelu(self.linear(x))
