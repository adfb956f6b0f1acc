"""It puts back how they are printed.

reference: linear
test: flags
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        torch.set_printoptions(profile="default")
        return F.gelu(self.linear(x))
