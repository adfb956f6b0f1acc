"""Reads its weight as if it lay in memory row by row."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w = self.linear.weight
        if torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        rows = w.detach().as_strided(w.shape, (w.shape[1], 1))
        return F.gelu(F.linear(x, rows, self.linear.bias))
