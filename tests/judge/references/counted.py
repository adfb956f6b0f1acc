"""Less a moving average, with a count of calls, behind a tanh."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, momentum):
        super().__init__()
        self.momentum = momentum
        self.scale = nn.Parameter(torch.ones(n))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.steps += 1
                self.mean.lerp_(x.detach().mean(0), self.momentum)
        return torch.tanh((x - self.mean) * self.scale)


def get_inputs():
    return [torch.randn(18, 26)]


def get_init_inputs():
    return [26, 0.1]
