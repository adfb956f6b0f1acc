"""PyTorch gives each warning again and again.

reference: linear
test: flags
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        torch.set_warn_always(True)
        y = F.gelu(self.linear(x))
        return y
