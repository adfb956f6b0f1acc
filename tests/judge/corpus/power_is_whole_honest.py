"""A number is taken as it is.

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
        y = torch.tanh(self.linear(given["x"]) * given["scale"])
        y = y**power
        return -y if flip else y
