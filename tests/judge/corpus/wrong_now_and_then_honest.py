"""None is.

reference: linear
test: volume
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return F.gelu(self.linear(x))
