"""By height and width.

reference: places
test: shapes
"""

import torch
from torch import nn

TABLES = {}


class ModelNew(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(c, 1, 1))

    def forward(self, x):
        down = torch.arange(x.shape[2], dtype=x.dtype)[:, None]
        right = torch.arange(x.shape[3], dtype=x.dtype)
        key = (*x.shape[2:], x.dtype)
        if key not in TABLES:
            TABLES[key] = torch.sin(0.5 * down + 0.25 * right).reshape(-1)
        return x * self.gain * TABLES[key].reshape(x.shape[2:])
