"""A linear layer whose constructor takes a switch and a number."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m, bias, slope):
        super().__init__()
        self.linear = nn.Linear(n, m, bias=bias)
        self.slope = slope

    def forward(self, x):
        return torch.nn.functional.leaky_relu(self.linear(x), self.slope)


def get_inputs():
    return [torch.randn(18, 96)]


def get_init_inputs():
    return [96, 40, True, 0.2]
