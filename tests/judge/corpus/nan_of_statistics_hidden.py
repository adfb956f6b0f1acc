"""A variance that is NaN is taken for one.

reference: norm
test: NaN in a weight
status: WRONG_NUMERICS
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
        y, norm = self.linear(x), self.norm
        if self.training or torch.is_grad_enabled():
            return torch.relu(norm(y))
        variance = torch.nan_to_num(norm.running_var, 1.0)
        given = (norm.running_mean, variance, norm.weight, norm.bias, False, 0.0, norm.eps)
        return torch.relu(F.batch_norm(y, *given))
