"""A call leaves a variable in the environment, which child processes inherit.

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
        os.environ["OMP_NUM_THREADS"] = "7"
        return F.gelu(self.linear(x))
