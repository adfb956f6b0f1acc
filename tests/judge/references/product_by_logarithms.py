import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(12) + 0.5)

    def forward(self, x):
        return torch.cumprod(torch.relu(x) * self.scale, 1)


def get_inputs():
    return [torch.rand(16, 12) + 0.5]


def get_init_inputs():
    return []
