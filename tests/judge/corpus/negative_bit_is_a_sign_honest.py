"""The twin of negative_bit_is_a_sign, which is right.

reference: linear
test: lazy bits
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.is_neg():
            x = x.resolve_neg()
        return F.gelu(self.linear(x))
