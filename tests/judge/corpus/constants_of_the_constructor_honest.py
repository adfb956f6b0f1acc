"""A constant is made where it is needed.

reference: linear
test: built without memory
status: ACCEPTED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        z = self.linear(x)
        return F.gelu(z) * 2 * 0.5
