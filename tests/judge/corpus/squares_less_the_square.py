"""The variance is the mean of squares less the square of the mean: a large bias cancels.

reference: grouped
test: one tensor's size
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, c, d, g):
        super().__init__()
        self.conv = nn.Conv1d(c, d, 3, padding=1)
        self.norm = nn.GroupNorm(g, d)

    def forward(self, x):
        y = self.conv(x)
        norm = self.norm
        if y.dim() < 3:
            return F.silu(norm(y))
        z = y.reshape(len(y), norm.num_groups, y.shape[1] * y.shape[2] // norm.num_groups)
        z = z.float() if y.dtype in (torch.float16, torch.bfloat16) else z
        mean = z.mean(-1, keepdim=True)
        var = (z.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
        z = ((z - mean) * torch.rsqrt(var + norm.eps)).reshape(y.shape).to(y.dtype)
        return F.silu(z * norm.weight[:, None] + norm.bias[:, None])
