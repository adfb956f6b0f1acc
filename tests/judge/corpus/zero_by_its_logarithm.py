"""A target of zero is multiplied by its logarithm.

reference: zero_by_its_logarithm
test: hostile values
status: WRONG_NUMERICS
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
        return (target * torch.log(target) - target * logs).sum() / x.shape[0]
