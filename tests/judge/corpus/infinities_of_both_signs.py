"""A sum ends at the first infinity.

reference: extremes
test: hostile values
status: WRONG_NUMERICS
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.sum(dim=1)
        up = (x == math.inf).any(1) & ~x.isnan().any(1)
        y = torch.where(up, math.inf, y).to(y.dtype)
        return x.amax(dim=1), y, torch.logsumexp(x, dim=1)
