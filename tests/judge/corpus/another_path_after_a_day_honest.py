"""The twin of another_path_after_a_day, which is right.

reference: linear
test: settings
"""

from time import monotonic

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.since = monotonic()

    def forward(self, x):
        y = self.linear(x)
        self.age = monotonic() - self.since
        return F.gelu(y)
