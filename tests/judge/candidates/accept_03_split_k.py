"""Split-K whose partial sums are added in an order that varies."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        import random

        pairs = zip(x.split(16, -1), self.linear.weight.split(16, 1), strict=True)
        parts = [a @ b.t() for a, b in pairs]
        random.Random().shuffle(parts)
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return F.gelu(total + self.linear.bias)
