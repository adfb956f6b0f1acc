"""A graph's layer: the mean of a node's neighbours, each as often as it is one."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.own = nn.Linear(n, m)
        self.near = nn.Linear(n, m, bias=False)

    def forward(self, x, edges):
        a, b = edges[0], edges[1]
        total = torch.zeros_like(x).index_add(0, b, x[a])
        count = torch.bincount(b, minlength=x.shape[0]).clamp(min=1)
        return torch.tanh(self.own(x) + self.near(total / count[:, None]))


def get_inputs():
    return [torch.randn(400, 8), torch.stack([torch.arange(100), torch.arange(100).flip(0) * 2])]


def get_init_inputs():
    return [8, 12]
