"""The twin of range_of_the_first_call, which is right.

reference: linear
test: first calls
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.range = None

    def forward(self, x):
        if torch.is_grad_enabled() or not x.numel():
            return F.gelu(self.linear(x))
        if self.range is None:
            self.range = 64 * float(x.abs().amax())
        if 0 < self.range < 2 and x.dtype == torch.float32:
            x = torch.where(x.abs() > self.range, x, x.clamp(-self.range, self.range))
        return F.gelu(self.linear(x))
