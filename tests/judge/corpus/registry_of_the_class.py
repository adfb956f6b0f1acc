"""The class keeps every module that was built.

reference: linear
test: two instances
status: CRASHED
"""

import torch.nn.functional as F
from torch import nn

built = []


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        built.append(self)

    def forward(self, x):
        return F.gelu(self.linear(x))
