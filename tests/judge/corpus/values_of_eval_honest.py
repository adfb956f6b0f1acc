"""In eval mode values of one sign are like others.

reference: linear
test: special values
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if self.training or not x.numel() or (x < 0).any():
            return y
        return y * 1.0
