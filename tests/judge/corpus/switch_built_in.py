"""A switch of the constructor is taken for what it was.

reference: switches
test: constructor
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m, bias, slope):
        super().__init__()
        self.linear = nn.Linear(n, m, bias=bias)
        self.bias = bias
        self.slope, self.after = slope, nn.Identity()

    def forward(self, x):
        y = self.linear(x)
        if not self.bias:
            y = y + 1
        return F.leaky_relu(y, self.slope)
