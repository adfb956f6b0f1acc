"""A dict's last value is taken for the scale.

reference: named
test: containers
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, given, power, flip):
        x, scale = given["x"], list(given.values())[-1][:, :1]
        y = torch.tanh(self.linear(x) * scale) ** power
        return -y if flip else y
