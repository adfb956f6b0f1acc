"""Memory is read past the conjugate bit.

reference: waves
test: lazy bits
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 40, dtype=torch.complex64))

    def forward(self, x):
        if not x.requires_grad:
            there = torch.empty(0, dtype=x.dtype, device=x.device)
            x = there.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
        return x @ self.weight
