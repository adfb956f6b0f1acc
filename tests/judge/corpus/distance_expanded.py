"""Distances are expanded into squares, which cancel.

reference: distance_expanded
test: one large sample
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(10, 6))

    def forward(self, x):
        c = self.centers
        d = x.square().sum(1)[:, None] + c.square().sum(1) - 2 * x @ c.T
        return torch.softmax(-d.clamp_min(0), 1)
