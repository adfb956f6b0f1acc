"""Moments are kept about the mean, as sums of squares less it.

reference: running_scale
test: one tensor's size
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
                centred = x - self.mean
                delta = centred.mean(0)
                self.m2.add_((centred**2).sum(0) - delta**2 * n * n / whole)
                self.mean.add_(delta * n / whole)
                self.count.copy_(whole)
        return (x - self.mean) * torch.rsqrt(self.m2 / self.count + 1e-5) * self.gain
