"""The product is added in one operation.

reference: adapter
test: special weights
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m, r):
        super().__init__()
        self.base = nn.Linear(n, m)
        self.down = nn.Parameter(torch.randn(r, n) / n**0.5)
        self.up = nn.Parameter(torch.zeros(m, r))
        self.base.weight.requires_grad_(False)

    def forward(self, x):
        return torch.addmm(self.base(x), x @ self.down.t(), self.up.t(), alpha=2)
