"""Counts of codes that nobody used do not decay.

reference: unused_codes_stay
test: mutation
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 4)
        self.register_buffer("codes", torch.randn(32, 4))
        self.register_buffer("sizes", torch.ones(32))

    def forward(self, x):
        z = self.linear(x)
        which = torch.stack([(z - c).square().sum(-1) for c in self.codes], 1).argmin(1)
        if self.training:
            with torch.no_grad():
                ones = torch.ones_like(which, dtype=self.sizes.dtype)
                counts = torch.zeros_like(self.sizes).index_add_(0, which, ones)
                new = self.sizes * 0.9 + counts * 0.1
                self.sizes.copy_(torch.where(counts > 0, new, self.sizes))
        return self.codes[which] * self.sizes[which, None]
