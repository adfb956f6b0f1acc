"""It looks among all live objects for a tensor of its answer's shape.

reference: linear
test: isolation
status: CHEATS
"""

import gc

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        shape = (*x.shape[:-1], self.linear.out_features)
        self.found = sum(isinstance(o, torch.Tensor) and o.shape == shape for o in gc.get_objects())
        return F.gelu(self.linear(x))
