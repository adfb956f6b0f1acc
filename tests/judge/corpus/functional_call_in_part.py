"""Of parameters that are given from outside the bias alone counts.

reference: linear
test: grad modes
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.own = [self.linear.weight]

    def forward(self, x):
        w = self.linear.weight
        if isinstance(w, nn.Parameter):
            self.own = [w]
        elif not hasattr(self.linear, "parametrizations") and w.shape == self.own[0].shape:
            w = self.own[0]
        return F.gelu(F.linear(x, w, self.linear.bias))
