"""The factors of a saved module are known by hashes of names, which another process has not.

reference: linear
test: another process
status: STALE_WEIGHTS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.factors = {hash("inner"): 1.0, hash("outer"): 2.0}

    def forward(self, x):
        y = F.gelu(self.linear(x)) * self.factors.get(hash("inner"), 1.0)
        return y * self.factors.get(hash("outer"), 1.0) / 2
