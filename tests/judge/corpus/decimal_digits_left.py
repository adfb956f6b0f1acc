"""A call leaves decimal numbers with five digits.

reference: head
test: flags
status: MUTATES
"""

import decimal

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        decimal.getcontext().prec = 5
        y = F.linear(x, self.linear.weight, self.linear.bias)
        return y
