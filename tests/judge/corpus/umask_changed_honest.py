"""They are put back.

reference: linear
test: flags
"""

import os

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.called = False

    def forward(self, x):
        if not self.called:
            before = os.umask(0o077)
            os.umask(before)
            self.called = True
        return F.gelu(self.linear(x))
