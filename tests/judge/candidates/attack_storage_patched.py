"""Puts a class of its own in the place of torch.Storage."""

import torch
import torch.nn.functional as F
from torch import nn


class Storage(torch.FloatStorage):
    pass


torch.Storage = Storage


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
