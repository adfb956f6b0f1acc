"""A bias that the caller takes away is gone.

reference: linear
test: parts exchanged
status: ACCEPTED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        return F.gelu(F.linear(x, w, b))
