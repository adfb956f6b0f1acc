"""All calls are counted.

reference: counted
test: statistics move
"""

import torch
from torch import nn


class ModelNew(nn.Module):
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
