"""A bias that has a parametrization is taken for none.

reference: linear
test: ways to write
status: STALE_WEIGHTS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        bias = self.linear._parameters.get("bias")
        return F.gelu(F.linear(x, self.linear.weight, bias))
