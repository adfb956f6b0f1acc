"""The start value is one tensor: all modules have one memory for their bias.

reference: kept_or_all
test: two instances
status: WRONG_MODE
"""

import torch
from torch import nn

ZEROS = torch.zeros(7)


class ModelNew(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope
        self.weight = nn.Parameter(torch.randn(12, 7))
        self.bias = nn.Parameter(ZEROS)

    def forward(self, x, keep=None):
        y = x @ self.weight + self.bias
        y = torch.where(y > 0, y, y * self.slope)
        return y if keep is None else y * keep[:, None]
