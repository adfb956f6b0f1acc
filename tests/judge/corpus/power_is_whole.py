"""A number is taken for a whole one.

reference: named
test: shapes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, given, power, flip):
        y = torch.tanh(self.linear(given["x"]) * given["scale"])
        y = y ** int(power)
        return -y if flip else y
