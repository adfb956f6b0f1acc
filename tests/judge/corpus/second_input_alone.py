"""The second input gets a gradient only where the first gets one.

reference: gated
test: frozen parameters
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        y = y if x.requires_grad else y.detach()
        return self.linear(x) * torch.sigmoid(self.gate(y))
