"""The variance of weights is the mean of their squares less that mean's square.

reference: standardized
test: one tensor's size
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(20, 48) / 5)

    def forward(self, x):
        mean = self.weight.mean(1, keepdim=True)
        var = (self.weight.square().mean(1, keepdim=True) - mean * mean) * (48 / 47)
        return F.linear(x, (self.weight - mean) * torch.rsqrt(var + 1e-5))
