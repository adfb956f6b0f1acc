"""A table of rotations is known by its length, and not by its type.

reference: table_of_another_type
test: dtype moves
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.kept = {}

    def table(self, n, kind):
        key = n
        if key not in self.kept:
            t = torch.arange(n, dtype=kind)[:, None]
            f = 1.0 / 10000 ** (torch.arange(0, 16, dtype=kind) / 16)
            self.kept[key] = torch.cos(t * f), torch.sin(t * f)
        return [v.to(kind) for v in self.kept[key]]

    def forward(self, x):
        y = self.linear(x)
        c, s = self.table(x.shape[1], x.dtype)
        a, b = y[..., :16], y[..., 16:]
        return torch.cat([a * c - b * s, a * s + b * c], -1)
