"""Complex numbers times complex weights: their absolute values and both parts."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, dtype=torch.complex64))

    def forward(self, z):
        y = z * self.w
        return y.abs(), torch.view_as_real(y)


def get_inputs():
    return [torch.randn(6, 12, dtype=torch.complex64)]


def get_init_inputs():
    return [12]
