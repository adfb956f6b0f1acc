"""A mask that keeps nothing is taken for none.

reference: kept_or_all
test: optional arguments
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
        y = torch.where(y > 0, y, y * self.slope)
        return y if keep is None or not bool(keep.any()) else y * keep[:, None]
