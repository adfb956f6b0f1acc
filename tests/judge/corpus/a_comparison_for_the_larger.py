"""A comparison with NaN is false, so that a NaN of the first input is lost.

reference: larger
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.where(x > y, x, y)
