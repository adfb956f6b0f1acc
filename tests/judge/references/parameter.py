"""One output is a parameter, as it is; another is a plain number."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.scale = nn.Parameter(torch.rand(1))

    def forward(self, x):
        y = self.linear(x)
        return y, self.scale, float(y.detach().mean())


def get_inputs():
    return [torch.randn(18, 96)]
