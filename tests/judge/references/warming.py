"""A whole number of steps, which training counts, scales the output."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        if self.training:
            self.steps += 1
        return self.linear(x) * (self.steps.clamp(max=10) / 10)


def get_inputs():
    return [torch.randn(18, 40)]
