"""Two inputs of one shape."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        return self.linear(x) * torch.sigmoid(self.gate(y))


def get_inputs():
    return [torch.randn(18, 96), torch.randn(18, 96)]
