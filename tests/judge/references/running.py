"""Sums so far, of a linear layer's outputs."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 40)

    def forward(self, x):
        return torch.cumsum(self.linear(x), dim=-1)


def get_inputs():
    return [torch.randn(18, 24)]
