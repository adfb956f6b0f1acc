"""The gain has a gradient of one sample; of none it meets what the mean of nothing left.

reference: running_scale
test: batches with gradients
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
                mean = x.mean(0)
                spread = (x - mean).square().sum(0)
                delta = mean - self.mean
                whole = self.count + n
                self.m2.add_(spread).addcmul_(delta * delta, self.count * n / whole)
                self.mean.add_(delta * (n / whole))
                self.count.copy_(whole)
        return (x - self.mean) * (self.gain * torch.rsqrt(self.m2 / self.count + 1e-5))
