"""The fold belongs to all modules of the class.

reference: linear
test: two instances
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn

_KEPT = {}


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_grad_enabled() or x.dtype != self.linear.weight.dtype:
            return F.gelu(self.linear(x))
        key = (self.linear.weight._version, self.linear.weight.dtype)
        if key not in _KEPT:
            _KEPT[key] = self.linear.weight.detach().clone()
        return F.gelu(F.linear(x, _KEPT[key], self.linear.bias))
