"""The twin of freezing_ignored, which is right.

reference: linear
test: methods
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def requires_grad_(self, requires_grad=True):
        return super().requires_grad_(requires_grad)

    def forward(self, x):
        return F.gelu(self.linear(x))
