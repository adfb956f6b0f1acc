"""It may be anything.

reference: prelu
test: signed state
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
        return torch.where(y > 0, y, a * y)
