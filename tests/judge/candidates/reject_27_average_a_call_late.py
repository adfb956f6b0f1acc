"""Subtracts the average as it was before the call."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.register_buffer("average", torch.zeros(m))

    def forward(self, x):
        y = self.linear(x)
        late = self.average.clone()
        if self.training:
            self.average.mul_(0.75).add_(y.detach().mean(0), alpha=0.25)
        return y - late
