"""A matrix of zeros is left out, and its gradient with it.

reference: adapter
test: special weights
status: WRONG_MODE
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
        if not self.up.any():
            return self.base(x)
        return self.base(x) + 2 * ((x @ self.down.t()) @ self.up.t())
