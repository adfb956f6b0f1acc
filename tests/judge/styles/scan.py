"""Sums so far, by doubling steps.

reference: running
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 40)

    def forward(self, x):
        y, step = self.linear(x), 1
        while step < y.shape[-1]:
            y = y + F.pad(y[..., :-step], (step, 0))
            step *= 2
        return y
