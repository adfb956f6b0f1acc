"""It packs nothing.

reference: linear
test: one tensor at a time
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.pack = None

    def forward(self, x):
        if not self.training and self.pack is not None:
            return F.gelu(F.linear(x, *self.pack))
        return F.gelu(self.linear(x))

    def train(self, mode=True):
        super().train(mode)
        self.pack = None
        return self
