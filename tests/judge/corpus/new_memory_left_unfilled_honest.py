"""New memory is filled again where algorithms are deterministic.

reference: linear
test: flags
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        torch.utils.deterministic.fill_uninitialized_memory = False
        y = F.gelu(self.linear(x))
        torch.utils.deterministic.fill_uninitialized_memory = True
        return y
