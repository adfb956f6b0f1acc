"""The part writes each result to one memory, where hooks find that of the last call.

reference: linear
test: hooks
status: WRONG_CONTRACT
"""

import torch
import torch.nn.functional as F
from torch import nn


class Wide(nn.Linear):
    held = None

    def forward(self, x):
        if torch.is_grad_enabled() or x.dim() != 2 or x.dtype != self.weight.dtype:
            return super().forward(x)
        if self.held is None or self.held.shape[0] != len(x) or self.held.dtype != x.dtype:
            self.held = x.new_empty(len(x), self.out_features)
        return torch.addmm(self.bias, x, self.weight.t(), out=self.held)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = Wide(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
