"""A layer over the last axis of three."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(14, 5))

    def forward(self, x):
        return torch.tanh(x @ self.weight)


def get_inputs():
    return [torch.randn(6, 20, 14)]
