"""Statistics that the caller takes away are still used.

reference: norm
test: parts exchanged
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.kept = None

    def forward(self, x):
        z, norm = self.linear(x), self.norm
        if norm.training or torch.is_grad_enabled() or z.dtype != torch.float32:
            return torch.relu(norm(z))
        if norm.running_mean is not None:
            self.kept = norm.running_mean.clone(), norm.running_var.clone()
        if self.kept is None:
            return torch.relu(norm(z))
        return torch.relu(F.batch_norm(z, *self.kept, norm.weight, norm.bias, False, 0.0, norm.eps))
