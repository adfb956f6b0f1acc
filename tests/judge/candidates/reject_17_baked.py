"""Weights copied at construction and never looked at again."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

        self.baked = self.linear.weight.detach().clone()

    def forward(self, x):
        return F.gelu(F.linear(x, self.baked, self.linear.bias))
