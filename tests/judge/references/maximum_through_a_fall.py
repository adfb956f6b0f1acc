import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 32)
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return (self.linear(x) * self.gain.abs()).max(1).values


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
