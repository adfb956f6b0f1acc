"""The first call puts new parameters in the place of those that an optimizer holds.

reference: linear
test: optimizer loop
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.moved = False

    def forward(self, x):
        if not self.moved:
            self.moved = True
            self.linear.weight = nn.Parameter(self.linear.weight.detach().clone())
        return F.gelu(self.linear(x))
