"""One row of the second input, which is for all, is taken for the first row alone.

reference: gated
test: layout of each axis
status: WRONG_NUMERICS
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
            rest = gate.new_full((len(value) - 1, gate.shape[1]), 0.5)
            gate = torch.cat([gate, rest])
        return value * gate
