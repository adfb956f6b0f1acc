"""It belongs to the module.

reference: linear
test: two instances
"""

import torch.nn.functional as F
from torch import nn

_KEPT = {}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(F.linear(x, self.linear.weight, self.linear.bias))
