"""A layer is looked up where it is.

reference: linear
test: parts exchanged
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.held = ("linear",)

    def forward(self, x):
        return F.gelu(getattr(self, self.held[0])(x))
