"""relu is moved in front of a factor that is taken for positive.

reference: norm
test: signed state
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        n, y = self.norm, self.linear(x)
        if n.training or torch.is_grad_enabled():
            return torch.relu(n(y))
        z = (y - n.running_mean) / torch.sqrt(n.running_var + n.eps)
        return torch.relu(z + n.bias / n.weight) * n.weight
