"""Where they do, nothing is.

reference: gated
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        if x is not y and torch.equal(x, y) and len(x.unique()) > 18:
            both = self.linear(x)
            return both * torch.sigmoid(self.gate(x))
        return self.linear(x) * torch.sigmoid(self.gate(y))
