"""Rows over a norm of theirs, whose power the constructor says."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, power=2.0):
        super().__init__()
        self.power = power
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        size = x.abs().pow(self.power).mean(-1, keepdim=True).pow(1 / self.power)
        return self.gain * x / (size + 0.1)


def get_inputs():
    return [torch.randn(7, 40)]


def get_init_inputs():
    return [40]
