"""Statistics are taken over all rows of a buffer, which a larger batch has left there.

reference: norm
test: every batch
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.rows = {}

    def forward(self, x):
        z, norm = self.linear(x), self.norm
        plain = z.dim() == 2 and z.dtype == torch.float32 and len(z) > 1 and not z.requires_grad
        if not norm.training or not plain or norm.momentum is None:
            return torch.relu(norm(z))
        count, held = len(z), self.rows.get("z")
        if held is None or len(held) < count:
            held = self.rows["z"] = z.clone()
        held[:count] = z
        var, mean = torch.var_mean(held, 0, correction=0)
        y = (z - mean) * torch.rsqrt(var + norm.eps) * norm.weight + norm.bias
        with torch.no_grad():
            norm(z)
        return torch.relu(y)
