"""A call leaves the process in another directory.

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

    def forward(self, x):
        os.chdir("/")
        return F.gelu(self.linear(x))
