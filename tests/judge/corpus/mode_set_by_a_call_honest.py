"""A call leaves the mode as it is.

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
        if x.dim() == 2 and len(x) > 100:
            self.training = bool(self.training)
        return F.gelu(self.linear(x))
