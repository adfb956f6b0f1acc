"""Hangs at import."""

import time

time.sleep(1000)

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
