"""A logarithm of sums loses rows of nothing but infinities.

reference: nothing_but_minus_infinity
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x):
        y = x + self.bias
        top = y.amax(1, keepdim=True).detach()

        return torch.log(torch.exp(y - top).sum(1)) + top[:, 0]
