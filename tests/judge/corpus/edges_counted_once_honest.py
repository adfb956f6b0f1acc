"""Sums by scatter_add.

reference: mean_of_neighbours
test: special integers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.own = nn.Linear(n, m)
        self.near = nn.Linear(n, m, bias=False)

    def forward(self, x, edges):
        a, b = edges[0], edges[1]
        total = torch.zeros_like(x).scatter_add(0, b[:, None].expand(-1, x.shape[1]), x[a])
        count = torch.bincount(b, minlength=x.shape[0]).clamp(min=1)
        return torch.tanh(self.own(x) + self.near(total / count[:, None]))
