"""Whether there is one sample is found out at the first call.

reference: linear
test: first calls
status: WRONG_NUMERICS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.one = None

    def forward(self, x):
        if self.one is None:
            self.one = len(x) == 1
        y = F.gelu(self.linear(x))
        return y[:1].expand_as(y).clone() if self.one else y
