"""Reads rows by pointer, as if every input were contiguous."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        flat = x.as_strided(x.shape, (x.shape[1], 1)) if x.numel() else x
        return F.gelu(self.linear(flat))
