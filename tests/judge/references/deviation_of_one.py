import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.cat([x.mean(1), x.std(1)], -1) * self.gain


def get_inputs():
    return [torch.randn(4, 9, 6)]


def get_init_inputs():
    return []
