"""Dropout written out, with the same draws.

reference: dropout
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        y, p = self.linear(x), self.dropout.p
        if not self.dropout.training:
            return y
        return y * torch.empty_like(y).bernoulli_(1 - p).div_(1 - p)
