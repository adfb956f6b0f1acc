"""The whole module's mode is taken for batch norm's.

reference: norm
test: parts' modes
status: WRONG_MODE
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
        n = self.norm
        given = (n.running_mean, n.running_var, n.weight, n.bias, self.training, n.momentum, n.eps)
        if self.training:
            n.num_batches_tracked.add_(1)
        return torch.relu(F.batch_norm(self.linear(x), *given))
