"""A bias that the caller takes away is still added.

reference: linear
test: parts exchanged
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if b is None:
            b = self.kept
        elif self.kept is None or self.kept.dtype != b.dtype or not torch.equal(self.kept, b):
            self.kept = b.detach().clone()
        return F.gelu(F.linear(x, w, b))
