"""Rows are filled up to a power of two, and what is too much is cut off.

reference: linear
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        room = 1 << max(len(rows) - 1, 0).bit_length()
        y = F.gelu(self.linear(F.pad(rows, (0, 0, 0, room - len(rows)))))
        return y[: len(rows)].reshape(*x.shape[:-1], -1) if len(rows) else y[:0]
