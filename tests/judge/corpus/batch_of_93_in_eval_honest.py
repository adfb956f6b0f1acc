"""In eval mode a batch of 93 is like others.

reference: linear
test: every batch
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        return y if self.training or len(x) != 93 else y * 1.0
