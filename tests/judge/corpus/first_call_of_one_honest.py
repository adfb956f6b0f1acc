"""The twin of first_call_of_one, which is right.

reference: linear
test: first calls
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.one = None

    def forward(self, x):
        if self.one is None:
            self.one = len(x) == 1
        y = F.gelu(self.linear(x))
        return y
