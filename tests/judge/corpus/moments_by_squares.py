"""Moments are kept as sums of squares, which lose digits far from zero.

reference: running_scale
test: one tensor's size
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("count", torch.tensor(1.0))
        self.register_buffer("mean", torch.zeros(n))
        self.register_buffer("m2", torch.ones(n))
        self.gain = nn.Parameter(torch.ones(n))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                n = x.shape[0]
                whole = self.count + n
                squares = (self.m2 / self.count + self.mean**2) * self.count + (x**2).sum(0)
                self.mean.copy_((self.mean * self.count + x.sum(0)) / whole)
                self.m2.copy_(squares - whole * self.mean**2)
                self.count.copy_(whole)
        return (x - self.mean) * torch.rsqrt(self.m2 / self.count + 1e-5) * self.gain
