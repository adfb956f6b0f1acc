"""The twin of length_of_zero, which is right.

reference: length_of_zero
test: special integers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 16)

    def forward(self, x, lengths):
        y = torch.clamp_min(self.linear(x), 0)
        n = x.shape[1]
        there = (torch.arange(n)[None] < lengths[:, None]).to(y.dtype)
        total = torch.bmm(there[:, None], y)[:, 0]
        return total / lengths.clamp(min=1)[:, None]
