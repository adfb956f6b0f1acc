"""The twin of maximum_through_a_fall, which is right.

reference: maximum_through_a_fall
test: special weights
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 32)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        y = self.linear(x)
        return y.max(1).values * self.gain.abs()
