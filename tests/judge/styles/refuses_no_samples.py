"""A view that no sample has: there is no size that fits.

reference: gated
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, x, y):
        if x.shape != y.shape:
            raise ValueError(f"expected two of one shape, came {x.shape} and {y.shape}")
        rows = x.reshape(*x.shape[:-1], -1), y.reshape(*y.shape[:-1], -1)
        return self.linear(rows[0]) * torch.sigmoid(self.gate(rows[1]))
