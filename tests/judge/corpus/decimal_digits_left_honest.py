"""It computes with five, in a context of its own.

reference: head
test: flags
"""

import decimal

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        with decimal.localcontext() as context:
            context.prec = 5
        y = F.linear(x, self.linear.weight, self.linear.bias)
        return y
