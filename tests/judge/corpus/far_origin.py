"""Squares of distances by their binomials: near points of a large origin cancel.

reference: origin
test: initial state
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.origin = nn.Parameter(torch.full((16,), 1000.0))

    def forward(self, x):
        o = self.origin
        return (x * x).sum(1) - 2 * (x @ o) + o @ o
