"""Each call closes its file.

reference: linear
test: leaks
"""

import os

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        os.close(os.open(os.devnull, os.O_RDONLY))
        return F.gelu(self.linear(x))
