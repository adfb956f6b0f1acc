"""They go along.

reference: linear
test: forward mode
"""

import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if fwAD._current_level >= 0:
            y = F.gelu(F.linear(x, self.linear.weight, self.linear.bias))
        else:
            y = F.gelu(self.linear(x))
        return y
