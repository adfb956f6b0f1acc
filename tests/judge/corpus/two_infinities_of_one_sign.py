"""Two infinities in a row are subtracted from one another.

reference: extremes
test: hostile values
status: WRONG_NUMERICS
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.logsumexp(x, dim=1)
        several = (x == math.inf).sum(1) > 1
        y = torch.where(several, math.nan, y).to(y.dtype)
        return x.amax(dim=1), x.sum(dim=1), y
