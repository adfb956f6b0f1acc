import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.utils.parametrizations.spectral_norm(nn.Linear(20, 12))

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.randn(8, 20)]


def get_init_inputs():
    return []
