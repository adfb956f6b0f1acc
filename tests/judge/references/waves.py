"""Complex inputs and weights."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 40, dtype=torch.complex64))

    def forward(self, x):
        return x @ self.weight


def get_inputs():
    return [torch.randn(18, 96, dtype=torch.complex64)]
