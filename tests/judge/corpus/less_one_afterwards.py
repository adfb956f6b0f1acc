"""Less one after the exponential: nothing is left near zero.

reference: growth
test: far magnitudes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 16)

    def forward(self, x):
        return torch.exp(self.linear(x)) - 1
