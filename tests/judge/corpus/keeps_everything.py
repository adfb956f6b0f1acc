"""It keeps a copy of every input.

reference: linear
test: leaks
status: CRASHED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = []

    def forward(self, x):
        self.kept.append(x.detach().clone())
        return F.gelu(self.linear(x))
