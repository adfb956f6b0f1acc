"""They are detached.

reference: norm
test: statistics move
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        z, b = self.linear(x), self.norm
        if not b.training or b.momentum is None or len(z) < 2:
            return torch.relu(b(z))
        mean, var = z.mean(0), z.var(0, unbiased=False)
        with torch.no_grad():
            b.num_batches_tracked += 1
        more = var * (len(z) / (len(z) - 1))
        for name, value in (("running_mean", mean), ("running_var", more)):
            old = getattr(b, name)
            old.copy_(old + b.momentum * (value.detach() - old))
        y = (z - mean) * torch.rsqrt(var + b.eps) * b.weight + b.bias
        return torch.relu(y)
