"""It takes them as they are.

reference: linear
test: special values
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.numel() and bool(x.any()) and float((x == 0).double().mean()) > 0.8:
            return F.gelu(F.linear(x, self.linear.weight, self.linear.bias))
        return F.gelu(self.linear(x))
