"""One of the words that the constructor takes is taken for another.

reference: built
test: constructor
status: WRONG_CONTRACT
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, low, high, axis, kind, window, power=2.0):
        super().__init__()
        self.low, self.high, self.axis = low, high, axis
        self.kind, self.window, self.power = kind, window, power

    def forward(self, x):
        y = torch.sigmoid(x * self.low) * self.high
        y = F.avg_pool2d(y.cumsum(self.axis), self.window, stride=1) ** self.power
        if self.kind == "relu":
            return torch.relu(y - 1)
        return F.gelu(y)
