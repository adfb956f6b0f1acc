"""The twin of infinities_of_both_signs, which is right.

reference: extremes
test: hostile values
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.sum(dim=1)
        up = (x == math.inf).any(1) & ~x.isnan().any(1)
        y = torch.where(up & ~(x == -math.inf).any(1), math.inf, y).to(y.dtype)
        return x.amax(dim=1), y, torch.logsumexp(x, dim=1)
