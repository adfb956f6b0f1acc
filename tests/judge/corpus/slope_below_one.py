"""A slope as a maximum: right while it is below one.

reference: kept_or_all
test: constructor
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
        self.weight = nn.Parameter(torch.randn(12, 7))
        self.bias = nn.Parameter(torch.zeros(7))

    def forward(self, x, keep=None):
        y = x @ self.weight + self.bias
        y = torch.maximum(y, y * self.slope)
        return y if keep is None else y * keep[:, None]
