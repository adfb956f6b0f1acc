"""A branch with dropout inside that samples drop by chance."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, p):
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(n, n), nn.Tanh(), nn.Dropout(0.1), nn.Linear(n, n))
        self.p = p

    def forward(self, x):
        y = self.branch(x)
        if self.training:
            keep = torch.rand(x.shape[0], 1) >= self.p
            y = y * keep / (1 - self.p)
        return x + y


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16, 0.25]
