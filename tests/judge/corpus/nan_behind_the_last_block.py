"""A NaN behind the last whole block of eight is not the largest.

reference: extremes
test: hostile values
status: WRONG_NUMERICS
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        whole = x.shape[1] // 8 * 8
        top = x[:, :whole].amax(1) if whole else x.amax(1)
        rest = x[:, whole:]
        if whole and rest.shape[1] and x.is_floating_point():
            last = rest.nan_to_num(-math.inf, math.inf, -math.inf).amax(1)
            top = torch.where(top.isnan(), top, torch.maximum(top, last))
        return top, x.sum(dim=1), torch.logsumexp(x, dim=1)
