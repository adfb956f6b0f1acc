"""Moments one row after the other, statistics as new tensors.

reference: norm
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        z, b = self.linear(x), self.norm
        odd = len(z) < 2 or b.momentum is None or torch.is_autocast_enabled("cpu")
        if odd or not b.training:
            return torch.relu(b(z))
        mean, square = z[0], torch.zeros_like(z[0])
        for i, row in enumerate(z[1:], 2):
            step = row - mean
            mean = mean + step / i
            square = square + step * (row - mean)
        var = square / len(z)
        with torch.no_grad():
            b.num_batches_tracked = b.num_batches_tracked + 1
            b.running_mean = torch.lerp(b.running_mean, mean.detach(), b.momentum)
            more = square.detach() / (len(z) - 1)
            b.running_var = torch.lerp(b.running_var, more, b.momentum)
        return F.relu((z - mean) / torch.sqrt(var + b.eps) * b.weight + b.bias)
