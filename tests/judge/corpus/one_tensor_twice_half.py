"""One tensor for both inputs gets the gradient of one.

reference: gated
test: inside a network
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
        y = y.detach() if x is y else y
        return self.linear(x) * torch.sigmoid(self.gate(y))
