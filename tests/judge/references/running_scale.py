"""Numbers less a running mean, over a running deviation, by the moments of all samples."""

import torch
from torch import nn


class Model(nn.Module):
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
                mean = x.mean(0)
                delta = mean - self.mean
                whole = self.count + n
                self.m2.add_(((x - mean) ** 2).sum(0) + delta * delta * self.count * n / whole)
                self.mean.add_(delta * n / whole)
                self.count.copy_(whole)
        return (x - self.mean) * torch.rsqrt(self.m2 / self.count + 1e-5) * self.gain


def get_inputs():
    return [torch.randn(12, 9)]


def get_init_inputs():
    return [9]
