"""Halves are rounded up, not to the next even number.

reference: turning
test: special values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 6)
        self.register_buffer("edges", torch.linspace(-2, 2, 9))

    def forward(self, x):
        near = torch.where(x - x.floor() == 0.5, x.floor() + 1, torch.round(x))
        above = torch.where(x > 0.25, x, 0.0)
        return near, above, torch.atanh(x), self.table(torch.bucketize(x, self.edges))
