"""The twin of nan_behind_the_last_block, which is right.

reference: extremes
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        whole = x.shape[1] // 8 * 8
        top = x[:, :whole].amax(1) if whole else x.amax(1)
        rest = x[:, whole:]
        if whole and rest.shape[1] and x.is_floating_point():
            top = torch.maximum(top, rest.amax(1))
        return top, x.sum(dim=1), torch.logsumexp(x, dim=1)
