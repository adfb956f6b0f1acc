"""It keeps the last thirty.

reference: linear
test: leaks
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
        del self.kept[:-30]
        return F.gelu(self.linear(x))
