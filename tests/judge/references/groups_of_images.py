import torch
from torch import nn


class Model(nn.Module):
    """A group norm of images."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(3, 16, 6, 5)]


def get_init_inputs():
    return []
