"""A tensor with the negative bit is taken for one of positive numbers.

reference: linear
test: lazy bits
status: WRONG_NUMERICS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.is_neg():
            x = x.abs()
        return F.gelu(self.linear(x))
