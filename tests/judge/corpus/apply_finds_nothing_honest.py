"""The twin of apply_finds_nothing, which is right.

reference: linear
test: methods
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def apply(self, fn):
        return super().apply(fn)

    def forward(self, x):
        return F.gelu(self.linear(x))
