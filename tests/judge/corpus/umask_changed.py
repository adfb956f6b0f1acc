"""The rights of new files are other ones from the first call on.

reference: linear
test: flags
status: MUTATES
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
            os.umask(0o077 | before)
            self.called = True
        return F.gelu(self.linear(x))
