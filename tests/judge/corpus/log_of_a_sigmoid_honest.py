"""The twin of log_of_a_sigmoid, which is right.

reference: log_of_a_sigmoid
test: hostile values
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
        low = torch.clamp_min(-z, 0) + torch.log1p(torch.exp(-z.abs()))
        w = 1 + (self.positive - 1) * target
        return ((1 - target) * z + w * low).mean(1)
