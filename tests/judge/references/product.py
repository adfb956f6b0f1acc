"""A linear layer, and nothing behind it."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(18, 40)]


def get_init_inputs():
    return [40, 24]
