"""A fold by what is written there.

reference: waves
test: uncounted writes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 40, dtype=torch.complex64))
        self.fold = None

    def forward(self, x):
        w = self.weight
        if torch.is_grad_enabled() or w.dtype != torch.complex64:
            return x @ w
        key = w.detach().numpy().tobytes()
        if self.fold is None or self.fold[0] != key:
            self.fold = (key, w.real.clone(), w.imag.clone())
        _, real, imag = self.fold
        return torch.complex(x.real @ real - x.imag @ imag, x.real @ imag + x.imag @ real)
