"""An image whose channels are last is read in one piece only where it is one.

reference: norm_of_pixels
test: layout of each axis
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        n, c, h, w = x.shape
        if x.stride(1) == 1 and c > 1 and x.is_contiguous(memory_format=torch.channels_last):
            rows = torch.as_strided(x, (n, h * w, c), (h * w * c, c, 1), x.storage_offset())
            var, mean = torch.var_mean(rows, 1, unbiased=False)
        else:
            var, mean = torch.var_mean(x, (2, 3), unbiased=False)
        scale = (var + 1e-5).rsqrt()[..., None, None] * self.weight[:, None, None]
        return (x - mean[..., None, None]) * scale + self.bias[:, None, None]
