"""A slope is taken to lie between nothing and one.

reference: prelu
test: signed state
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.act = nn.PReLU()

    def forward(self, x):
        y = self.linear(x)
        a = self.act.weight
        return torch.maximum(y, a.clamp(0, 1) * y)
