"""A call of no samples draws a number.

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
        if self.dropout.training and not len(x):
            torch.rand(1)
        return self.dropout(self.linear(x))
