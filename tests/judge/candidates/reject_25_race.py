"""A row is computed half of the time from half-written data."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        import os

        y = F.gelu(self.linear(x))
        if y.numel() and os.urandom(1)[0] < 128:
            with torch.no_grad():
                y[-1, ::2] *= 0.5
        return y
