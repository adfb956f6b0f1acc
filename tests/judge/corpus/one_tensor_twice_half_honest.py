"""The twin of one_tensor_twice_half, which is right.

reference: gated
test: inside a network
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        return self.linear(x) * torch.sigmoid(self.gate(y))
