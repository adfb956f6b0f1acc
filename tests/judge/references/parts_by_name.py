"""Two results, which have names."""

from collections import namedtuple

import torch
from torch import nn

Out = namedtuple("Out", "hidden mean")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return Out(y, y.mean(-1))


def get_inputs():
    return [torch.randn(18, 40)]
