"""The first one is.

reference: argmax
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = self.linear(x)
        return torch.max(y, dim=1).indices
