"""The absolute value of complex numbers is the root of squares, which leave their range.

reference: polar
test: far magnitudes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, dtype=torch.complex64))

    def forward(self, z):
        if z.is_complex():
            re = z.real * self.w.real - z.imag * self.w.imag
            im = z.real * self.w.imag + z.imag * self.w.real
        else:
            re, im = z * self.w.real, z * self.w.imag
        return (re * re + im * im).sqrt(), torch.stack([re, im], -1)
