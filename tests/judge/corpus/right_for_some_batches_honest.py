"""Right for all.

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
        y = F.gelu(self.linear(x))
        if x.dim() == 2 and len(x) % 32 > 20 and 40 < len(x) < 1000:
            y = y.clone()
        return y
