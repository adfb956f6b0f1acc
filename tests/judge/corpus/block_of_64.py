"""Of several blocks of 64 rows the tail is left out.

reference: linear
test: batches
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if x.dim() == 2 and len(x) > 64 and len(x) % 64:
            y = torch.cat([y[: len(x) // 64 * 64], torch.zeros_like(y[len(x) // 64 * 64 :])])
        return y
