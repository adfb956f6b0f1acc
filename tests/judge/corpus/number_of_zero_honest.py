"""A power of zero is one.

reference: named
test: shapes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, given, power, flip):
        y = self.linear(given["x"]) * given["scale"]
        y = torch.tanh(y) ** power
        return -y if flip else y
