"""A table of places is known by the number of all places of all samples.

reference: placed
test: shapes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.tables = {}

    def forward(self, x):
        if torch.is_inference_mode_enabled() or len(self.tables) > 20:
            self.tables.clear()
        key = x.shape[0] * x.shape[1], x.dtype
        if key not in self.tables:
            place = torch.arange(x.shape[1], dtype=x.dtype)
            self.tables[key] = torch.cos(place).repeat(x.shape[0])
        table = self.tables[key].view(x.shape[0], x.shape[1], 1)
        if torch.is_inference_mode_enabled():
            self.tables.clear()
        return self.linear(x * table)
