"""Two equal outputs, and one that depends on the shape alone."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)

    def forward(self, x):
        y = self.linear(x)
        return y, y.clone(), torch.ones(len(x), len(x)).tril()


def get_inputs():
    return [torch.randn(18, 96)]
