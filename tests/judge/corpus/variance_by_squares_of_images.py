"""The variance is the mean square less the squared mean, as in a kernel for another layout.

reference: groups_of_images
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        groups = x.reshape(len(x), 4, 4 * x.shape[2] * x.shape[3])
        mean = groups.mean(-1, keepdim=True)
        variance = ((groups * groups).mean(-1, keepdim=True) - mean * mean).clamp_min(0)
        y = ((groups - mean) * torch.rsqrt(variance + self.norm.eps)).reshape(x.shape)
        return torch.relu(y * self.norm.weight[:, None, None] + self.norm.bias[:, None, None])
