"""The twin of garbage_left_off, which is right.

reference: linear
test: flags
"""

import gc

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        gc.disable()
        y = F.gelu(self.linear(x))
        gc.enable()
        return y
