"""All of them count.

reference: linear
test: grad modes
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.own = [self.linear.weight]

    def forward(self, x):
        return F.gelu(self.linear(x))
