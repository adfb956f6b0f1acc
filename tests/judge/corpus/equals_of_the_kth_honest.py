"""The twin of equals_of_the_kth, which is right.

reference: equals_of_the_kth
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 24)

    def forward(self, x):
        z = torch.clamp_min(self.linear(x), 0) - 0.25
        order = z.sort(-1, descending=True)
        kept = z >= order.values[..., 7:8]
        e = torch.where(kept, torch.exp(z - order.values[..., :1]), 0.0)
        return e / e.sum(-1, keepdim=True)
