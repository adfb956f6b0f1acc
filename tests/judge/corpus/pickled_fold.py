"""A module takes its fold along, and does not look at the weights after it was loaded.

reference: linear
test: pickle
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.packed = None

    def __setstate__(self, state):
        super().__setstate__(state)
        self.packed = self.linear.weight.detach().clone()

    def forward(self, x):
        w = self.linear.weight if self.packed is None else self.packed
        return F.gelu(F.linear(x, w, self.linear.bias))
