"""The inputs of many calls are kept.

reference: linear
test: kept inputs
status: CRASHED
"""

from collections import deque

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.held = deque(maxlen=64)

    def forward(self, x):
        self.held.append(x.detach())
        return F.gelu(self.linear(x))
