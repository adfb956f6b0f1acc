"""Training keeps no activations: they are computed once more.

reference: norm
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def _activated(self, z):
        b = self.norm
        if not b.training:
            z = F.batch_norm(z, b.running_mean, b.running_var, b.weight, b.bias, False, 0.0, b.eps)
        else:  # the statistics move in the forward alone
            z = F.batch_norm(z, None, None, b.weight, b.bias, True, 0.0, b.eps)
        return torch.relu(z)

    def forward(self, x):
        z = self.linear(x)
        if self.norm.training:
            with torch.no_grad():
                self.norm(z)
        if not torch.is_grad_enabled():
            return self._activated(z)
        return checkpoint(self._activated, z, use_reentrant=False)
