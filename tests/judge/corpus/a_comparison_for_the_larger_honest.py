"""The twin of a_comparison_for_the_larger, which is right.

reference: larger
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return torch.where((x > y) | x.isnan(), x, y)
