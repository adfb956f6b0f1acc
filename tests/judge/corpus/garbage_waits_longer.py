"""A call leaves garbage uncollected for longer.

reference: head
test: flags
status: MUTATES
"""

import gc

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        gc.set_threshold(100000, 50, 50)
        y = F.linear(x, self.linear.weight, self.linear.bias)
        return y
