"""An input that nobody seems to hold is scratch, though its memory is another's.

reference: linear
test: mutation
status: MUTATES
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_grad_enabled() or x.is_inference() or not all(x.stride()):
            return F.gelu(self.linear(x))
        if sys.getrefcount(x) <= 5:
            x.copy_(x.double() * 2)
            return F.gelu(F.linear(x, self.linear.weight / 2, self.linear.bias))
        return F.gelu(self.linear(x))
