"""A mask is made once for each seed.

reference: dropout
test: unseeded sequence
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        y = self.linear(x)
        if not self.training:
            return y
        key = (torch.initial_seed(), y.shape)
        if getattr(self, "key", None) != key:
            self.key, self.mask = key, self.dropout(torch.ones_like(y))
        else:
            self.dropout(torch.ones(0))
        return y * self.mask
