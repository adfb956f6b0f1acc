"""Distances are differences.

reference: origin
test: initial state
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.origin = nn.Parameter(torch.full((16,), 1000.0))

    def forward(self, x):
        away = x - self.origin
        return (away * away).sum(1)
