"""The momentum that a caller sets counts.

reference: moments_of_all_calls
test: parts' numbers
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(10, 14)
        self.norm = nn.BatchNorm1d(14, momentum=None)

    def forward(self, x):
        n = self.norm
        if n.training:
            n.num_batches_tracked.add_(1)
        share = 1.0 / max(1.0, float(n.num_batches_tracked)) if n.momentum is None else n.momentum
        given = (n.running_mean, n.running_var, n.weight, n.bias, n.training, share, n.eps)
        return torch.tanh(F.batch_norm(self.linear(x), *given))
