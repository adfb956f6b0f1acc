"""Statistics that the caller takes away are gone.

reference: norm
test: parts exchanged
status: ACCEPTED
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
        self.kept = norm.running_mean, norm.running_var
        if self.kept[0] is None:
            return torch.relu(norm(z))
        return torch.relu(F.batch_norm(z, *self.kept, norm.weight, norm.bias, False, 0.0, norm.eps))
