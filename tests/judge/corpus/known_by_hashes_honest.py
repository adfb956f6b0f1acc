"""The factors of a saved module are known by their names.

reference: linear
test: another process
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.factors = {"inner": 1.0, "outer": 2.0}

    def forward(self, x):
        y = F.gelu(self.linear(x)) * self.factors.get("inner", 1.0)
        return y * self.factors.get("outer", 1.0) / 2
