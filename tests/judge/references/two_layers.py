"""Two linear layers, with an activation and a temperature."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.first = nn.Linear(n, m)
        self.act = nn.Tanh()
        self.second = nn.Linear(m, 7)
        self.temperature = 0.5

    def forward(self, x):
        return self.second(self.act(self.first(x))) / self.temperature


def get_inputs():
    return [torch.randn(16, 12)]


def get_init_inputs():
    return [12, 20]
