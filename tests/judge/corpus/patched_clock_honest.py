"""It reads the clock.

reference: linear
test: isolation
"""

import time

import torch.nn.functional as F
from torch import nn

began = time.perf_counter()


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        self.seconds = time.perf_counter() - began
        return F.gelu(self.linear(x))
