"""Edges that are there twice count once.

reference: mean_of_neighbours
test: special integers
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.own = nn.Linear(n, m)
        self.near = nn.Linear(n, m, bias=False)

    def forward(self, x, edges):
        a, b = torch.unique(edges, dim=1)
        total = torch.zeros_like(x).index_add(0, b, x[a])
        count = torch.bincount(b, minlength=x.shape[0]).clamp(min=1)
        return torch.tanh(self.own(x) + self.near(total / count[:, None]))
