"""It is read by its name.

reference: linear
test: ways to write
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        bias = self.linear.bias
        return F.gelu(F.linear(x, self.linear.weight, bias))
