"""A constant lies in a buffer that the state lacks: who builds on the meta device loses it.

reference: linear
test: built without memory
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.register_buffer("factor", torch.full((), 0.5), persistent=False)

    def forward(self, x):
        z = self.linear(x)
        return F.gelu(z) * 2 * self.factor.to(z.dtype)
