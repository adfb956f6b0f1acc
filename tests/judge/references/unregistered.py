"""A matrix that is neither parameter nor buffer."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = torch.randn(96, 64) / 8
        self.linear = nn.Linear(64, 40)

    def forward(self, x):
        return self.linear(x @ self.matrix)


def get_inputs():
    return [torch.randn(18, 96)]
