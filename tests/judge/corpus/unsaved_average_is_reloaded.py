"""A moving average that no state holds, and a weight that is read once.

reference: unsaved
test: reload
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)
        self.register_buffer("average", torch.linspace(-1, 1, 24), persistent=False)
        self.weight = None

    def forward(self, x):
        if self.weight is None:
            self.weight = self.linear.weight.detach().clone()
        y = nn.functional.linear(x, self.weight, self.linear.bias)
        if self.training:
            self.average.mul_(0.75).add_(y.detach().mean(0), alpha=0.25)
        return y - self.average
