"""Linear, less a moving average that training moves on and that no state holds."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)
        self.register_buffer("average", torch.linspace(-1, 1, 24), persistent=False)

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.average.lerp_(y.detach().mean(0), 0.25)
        return y - self.average


def get_inputs():
    return [torch.randn(18, 40)]
