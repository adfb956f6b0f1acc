"""Outputs of a millionth of a millionth."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return torch.tanh(self.linear(x)) * 1e-12


def get_inputs():
    return [torch.randn(18, 64)]


def get_init_inputs():
    return [64, 40]
