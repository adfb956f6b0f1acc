"""They are read by name.

reference: named
test: containers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, given, power, flip):
        x, scale = given["x"], given["scale"]
        y = torch.tanh(self.linear(x) * scale) ** power
        return -y if flip else y
