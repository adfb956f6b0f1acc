"""A call leaves all warnings ignored.

reference: linear
test: flags
status: MUTATES
"""

import warnings

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        warnings.filterwarnings("ignore")
        return F.gelu(self.linear(x))
