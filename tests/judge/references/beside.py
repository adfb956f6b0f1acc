"""Values of many kinds beside a tensor."""

import enum

import torch
from torch import nn


class Path(enum.Enum):
    HALF_DTYPES = "narrow"
    WIDE = "wide"


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = torch.relu(self.linear(x))
        path = Path.WIDE if x.shape[0] > 16 else Path.NARROW
        named = {path: y.sum(1), 2: torch.strided}
        values = (x.dtype, x.device, y.shape, path, None, "text", b"bytes", 3, 2.5 + 1j)
        return y, values, named


def get_inputs():
    return [torch.randn(18, 24)]


def get_init_inputs():
    return [24, 40]
