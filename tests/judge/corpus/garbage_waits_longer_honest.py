"""It puts the numbers back.

reference: head
test: flags
"""

import gc

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        before = gc.get_threshold()
        gc.set_threshold(100000, 50, 50)
        gc.set_threshold(*before)
        y = F.linear(x, self.linear.weight, self.linear.bias)
        return y
