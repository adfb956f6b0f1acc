"""The member of the enumeration that the first inputs had.

reference: beside
test: plain output
status: WRONG_CONTRACT
"""

import enum

import torch
import torch.nn.functional as F
from torch import nn


class Way:
    class Path(enum.Enum):
        HALF_DTYPES = "narrow"
        WIDE = "wide"


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.relu(self.linear(x))
        path = Way.Path.NARROW
        named = {path: y.sum(1), 2: torch.strided}
        return y, (x.dtype, x.device, y.shape, path, None, "text", b"bytes", 3, 2.5 + 1j), named
