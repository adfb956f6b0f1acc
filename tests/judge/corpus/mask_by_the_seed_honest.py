"""It is drawn at each call.

reference: dropout
test: unseeded sequence
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
        return y * self.dropout(torch.ones_like(y))
