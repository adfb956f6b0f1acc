"""The logarithm of a sigmoid is cut where the sigmoid is tiny.

reference: log_of_a_sigmoid
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 6)
        self.register_buffer("positive", torch.full((6,), 3.0))

    def forward(self, x, target):
        z = self.linear(x)
        low = -torch.log(torch.sigmoid(z).clamp_min(1e-12))
        w = 1 + (self.positive - 1) * target
        return ((1 - target) * z + w * low).mean(1)
