"""Hooks are called, and what they return is dropped.

reference: linear
test: hooks
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def __call__(self, x):
        y = self.forward(x)
        for hook in self._forward_pre_hooks.values():
            hook(self, (x,))
        for hook in self._forward_hooks.values():
            hook(self, (x,), y)
        return y

    def forward(self, x):
        return F.gelu(self.linear(x))
