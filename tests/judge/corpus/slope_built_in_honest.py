"""It is taken as given.

reference: switches
test: constructor
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m, bias, slope):
        super().__init__()
        self.linear = nn.Linear(n, m, bias=bias)
        self.square, self.slope = False, slope

    def forward(self, x):
        y = self.linear(x)
        return F.leaky_relu(y, self.slope)
