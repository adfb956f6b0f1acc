"""A linear layer and a slope that is learned."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.act = nn.PReLU()

    def forward(self, x):
        y = self.linear(x)
        return self.act(y)


def get_inputs():
    return [torch.randn(18, 96)]
