"""A norm whose constructor has defaults, which the file does not name."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, eps=1e-6, *, centred=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.centred = eps, centred

    def forward(self, x):
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def get_init_inputs():
    return [24]


def get_inputs():
    return [torch.randn(6, 24)]
