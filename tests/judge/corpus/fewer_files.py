"""The process may open fewer files from now on.

reference: linear
test: flags
status: MUTATES
"""

import resource

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        y = F.gelu(self.linear(x))
        return y
