"""The twin of strides_of_odd_batches, which is right.

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
        y = F.gelu(self.linear(x))
        if x.dim() == 2 and len(x) % 2 == 1:
            return y.t().contiguous().t().contiguous()
        return y
