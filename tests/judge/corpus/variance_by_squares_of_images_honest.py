"""The twin of variance_by_squares_of_images, which is right.

reference: groups_of_images
test: hostile values
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
        variance = (groups - mean).square().mean(-1, keepdim=True)
        y = ((groups - mean) * torch.rsqrt(variance + self.norm.eps)).reshape(x.shape)
        return torch.relu(y * self.norm.weight[:, None, None] + self.norm.bias[:, None, None])
