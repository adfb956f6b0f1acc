"""They are one where they are one object.

reference: gated
test: layout
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        if x is y:
            y = x
        return self.linear(x) * torch.sigmoid(self.gate(y))
