"""A moving average that no state holds, moved on as the reference moves it.

reference: unsaved
test: modes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)
        self.register_buffer("average", torch.linspace(-1, 1, 24), persistent=False)

    def forward(self, x):
        y = self.linear(x)
        if self.training:
            self.average.mul_(0.75).add_(y.detach().mean(0), alpha=0.25)
        return y - self.average
