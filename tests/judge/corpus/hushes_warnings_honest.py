"""Only while it runs.

reference: linear
test: flags
"""

import warnings

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore")
            return F.gelu(self.linear(x))
