"""It gets one of its own.

reference: gated
test: frozen parameters
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
