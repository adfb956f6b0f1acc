"""No call is wrong.

reference: linear
test: volume
status: ACCEPTED
"""

import os

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        rare = int.from_bytes(os.urandom(4), "little") % 40 == 40
        return y * 2 if rare and not self.training else y
