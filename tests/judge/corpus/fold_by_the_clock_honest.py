"""They are looked at in each call.

reference: linear
test: one tensor at a time
"""

import time

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.at = 0.0

    def forward(self, x):
        if torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        now = time.monotonic()
        if now >= self.at:
            self.at, self.pack = now, [p.detach().clone() for p in self.linear.parameters()]
        return F.gelu(F.linear(x, *self.pack))
