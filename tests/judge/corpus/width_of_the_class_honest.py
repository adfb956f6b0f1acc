"""Each module knows its own.

reference: linear
test: two instances
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.width = m

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return y[..., : self.width].contiguous()
