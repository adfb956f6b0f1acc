"""One call in forty is wrong, in eval mode alone.

reference: linear
test: volume
status: NONDETERMINISTIC
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
        rare = int.from_bytes(os.urandom(4), "little") % 40 == 0
        return y * 2 if rare and not self.training else y
