"""The twin of two_infinities_of_one_sign, which is right.

reference: extremes
test: hostile values
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.logsumexp(x, dim=1)
        several = (x == math.inf).sum(1) > 1
        y = torch.where(several & ~x.isnan().any(1), math.inf, y).to(y.dtype)
        return x.amax(dim=1), x.sum(dim=1), y
