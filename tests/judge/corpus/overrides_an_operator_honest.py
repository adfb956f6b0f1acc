"""The operator has a name of its own.

reference: linear
test: flags
"""

import torch
import torch.nn.functional as F
from torch import nn

LIBRARY = torch.library.Library("candidate_of_its_own", "DEF")
LIBRARY.define("larger(Tensor a, Tensor b) -> Tensor")


def larger(a, b):
    return torch.where(a > b, a, b)


LIBRARY.impl("larger", larger, "CPU")


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
