"""A bias of zeros is left out, and has no gradient.

reference: linear
test: special weights
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        bias = self.linear.bias
        if not bias.any():
            bias = None
        return F.gelu(F.linear(x, self.linear.weight, bias))
