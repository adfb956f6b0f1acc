"""Pixels times a wave of their place in the image."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(c, 1, 1))

    def forward(self, x):
        down = torch.arange(x.shape[2], dtype=x.dtype)[:, None]
        right = torch.arange(x.shape[3], dtype=x.dtype)
        return x * self.gain * torch.sin(0.5 * down + 0.25 * right)


def get_inputs():
    return [torch.randn(3, 4, 6, 10)]


def get_init_inputs():
    return [4]
