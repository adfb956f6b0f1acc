"""It is for all.

reference: gated
test: layout of each axis
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        gate = torch.sigmoid(self.gate(y))
        value = self.linear(x)
        if gate.shape != value.shape and gate.dim() == value.dim() == 2 and len(gate) == 1:
            gate = gate.expand(len(value), -1)
        return value * gate
