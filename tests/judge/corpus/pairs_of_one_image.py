"""The maximum of a function that falls and rises is taken at one end only.

reference: pairs_of_one_image
test: hostile values
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.GroupNorm(3, 6)

    def forward(self, x):
        y = self.conv(x)
        b, c, h, w = y.shape
        g = y.reshape(b, 3, -1)
        mean = g.mean(2, keepdim=True)
        d = g - mean
        var = (d * d).mean(2, keepdim=True)
        y = (d * torch.rsqrt(var + self.norm.eps)).reshape(b, c, h, w)
        y = y * self.norm.weight[:, None, None] + self.norm.bias[:, None, None]
        return F.silu(y.amax((2, 3)))
