"""Memory that begins at the third element of sixteen bytes is read from the first.

reference: linear
test: layout
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.is_contiguous() and x.storage_offset() % 4 == 2 and not torch.is_grad_enabled():
            x = x.as_strided(x.shape, x.stride(), x.storage_offset() - 2)
        return F.gelu(self.linear(x))
