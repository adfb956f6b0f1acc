"""A row that is masked throughout is zero.

reference: masked
test: masks
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x, mask):
        y = self.linear(x)
        y = y.masked_fill(mask, float("-inf")).softmax(-1)
        return torch.nan_to_num(y) if bool(torch.isfinite(x).all()) else y
