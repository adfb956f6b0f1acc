"""Batch norm with moments in float64.

reference: norm
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        y, norm = self.linear(x), self.norm
        if norm.momentum is None or y.dim() != 2 or len(y) < 2 or not norm.training:
            return torch.relu(norm(y))
        wide = y.double()
        var, mean = torch.var_mean(wide, dim=0, correction=0)
        with torch.no_grad():
            norm.num_batches_tracked.add_(1)
            share = len(y) / (len(y) - 1)
            norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), norm.momentum)
            norm.running_var.lerp_((var * share).to(norm.running_var.dtype), norm.momentum)
        z = ((wide - mean) / torch.sqrt(var + norm.eps)).to(y.dtype)
        return torch.relu(z * norm.weight + norm.bias)
