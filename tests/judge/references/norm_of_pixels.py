"""Each channel of an image normalised over its pixels."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        y = (x - x.mean((2, 3), keepdim=True)) / (
            x.var((2, 3), keepdim=True, unbiased=False) + 1e-5
        ).sqrt()
        return y * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


def get_inputs():
    return [torch.randn(3, 6, 8, 9)]


def get_init_inputs():
    return [6]
