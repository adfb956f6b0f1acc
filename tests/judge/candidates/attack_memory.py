"""Takes memory until there is none."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        self.held = [bytearray(b"x" * (64 << 20)) for _ in range(1000)]
        return F.gelu(self.linear(x))
