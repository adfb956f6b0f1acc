"""The twin of draws_exchanged, which is right.

reference: draws_exchanged
test: modes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.p = 0.2

    def forward(self, x):
        y = self.a(x)
        if not self.training:
            return y
        u = torch.rand(x.shape[0], 1)
        noise = torch.randn(x.shape[0], 12)
        return torch.where(u >= self.p, y / (1 - self.p), 0.0) + noise * 0.1
