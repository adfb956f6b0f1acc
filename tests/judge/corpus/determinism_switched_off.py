"""A call switches deterministic algorithms off, as if they had been off before.

reference: linear
test: settings
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
        torch._C._set_deterministic_algorithms(False)
        return F.gelu(self.linear(x))
