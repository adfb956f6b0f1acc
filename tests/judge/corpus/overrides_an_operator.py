"""An operator of PyTorch is exchanged for the whole process.

reference: linear
test: flags
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn

LIBRARY = torch.library.Library("aten", "IMPL")


def larger(a, b):
    return torch.where(a > b, a, b)


LIBRARY.impl("fmax", larger, "CPU")


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
