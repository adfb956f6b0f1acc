"""A power of zero is taken for none that was given.

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
        y = self.linear(given["x"]) * given["scale"]
        y = torch.tanh(y) ** (power or 2)
        return -y if flip else y
