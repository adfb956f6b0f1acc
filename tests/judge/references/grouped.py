"""A convolution of one axis, a group norm and a SiLU."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, c, d, g):
        super().__init__()
        self.conv = nn.Conv1d(c, d, 3, padding=1)
        self.norm = nn.GroupNorm(g, d)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.randn(4, 8, 33)]


def get_init_inputs():
    return [8, 16, 4]
