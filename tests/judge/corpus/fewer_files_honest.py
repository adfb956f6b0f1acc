"""The process may open as many files as before.

reference: linear
test: flags
status: ACCEPTED
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
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        return y
