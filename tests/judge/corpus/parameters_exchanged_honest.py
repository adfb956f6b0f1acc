"""It does not.

reference: linear
test: optimizer loop
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.moved = False

    def forward(self, x):
        self.moved = True
        return F.gelu(self.linear(x))
