"""A layer that is put in the place of another is not used.

reference: linear
test: parts exchanged
status: STALE_WEIGHTS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.held = (self.linear,)

    def forward(self, x):
        return F.gelu(self.held[0](x))
