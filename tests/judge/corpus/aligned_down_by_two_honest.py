"""The twin of aligned_down_by_two, which is right.

reference: linear
test: layout
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
