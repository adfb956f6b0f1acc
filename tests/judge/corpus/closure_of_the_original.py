"""What a copy computes is the original's: a function holds it.

reference: linear
test: two instances
status: MUTATES
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.compute = lambda x: F.gelu(self.linear(x))

    def forward(self, x):
        return self.compute(x)
