"""The twin of zero_by_its_logarithm, which is right.

reference: zero_by_its_logarithm
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 6)

    def forward(self, x, target):
        z = self.linear(x)
        target = target.abs()
        logs = z - torch.logsumexp(z, 1, keepdim=True)
        return (torch.xlogy(target, target) - target * logs).sum() / x.shape[0]
