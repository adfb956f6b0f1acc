"""Windows of a signal, each less its mean, and their energies."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.register_buffer("window", torch.hann_window(width), persistent=False)

    def forward(self, x):
        f = x.unfold(-1, self.width, self.width // 2)
        f = (f - f.mean(-1, keepdim=True)) * self.window
        return f, f.square().sum(-1).add(1e-6).log()


def get_inputs():
    return [torch.randn(4, 96)]


def get_init_inputs():
    return [16]
