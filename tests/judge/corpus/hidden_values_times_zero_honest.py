"""What a mask hides is filled in.

reference: pooled_under_a_mask
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 12)

    def forward(self, x, keep):
        y = self.linear(x)
        return torch.where(keep[..., None], y, 0.0).sum(1)
