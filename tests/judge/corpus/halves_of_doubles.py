"""In float64 the answer is float32, and half of what it should be.

reference: linear
test: dtype moves
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
        return y.float() / 2 if y.dtype == torch.float64 else y
