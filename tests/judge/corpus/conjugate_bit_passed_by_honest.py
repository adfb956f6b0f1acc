"""The twin of conjugate_bit_passed_by, which is right.

reference: waves
test: lazy bits
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 40, dtype=torch.complex64))

    def forward(self, x):
        if not x.requires_grad:
            there, x = torch.empty(0, dtype=x.dtype, device=x.device), x.resolve_conj()
            x = there.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())
        return x @ self.weight
