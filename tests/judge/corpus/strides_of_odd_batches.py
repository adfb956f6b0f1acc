"""Of an odd number of samples the result lies column by column.

reference: linear
test: shapes
status: WRONG_CONTRACT
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
            return y.t().contiguous().t()
        return y
