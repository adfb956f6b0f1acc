import torch
from torch import nn


class Model(nn.Module):
    """Sines, each times a weight."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        return torch.sin(x) * self.gain


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return []
