"""The twin of half_of_one_sample, which is right.

reference: linear
test: shapes
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = self.linear(x)
        if len(x) == 1:
            y = y.double().to(x.dtype)
        return F.gelu(y)
