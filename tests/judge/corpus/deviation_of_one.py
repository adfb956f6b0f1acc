"""The deviation of one value is zero.

reference: deviation_of_one
test: shapes
status: WRONG_NUMERICS
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        n = x.shape[1]
        mean = x.sum(1) / n
        d = x.double() - x.double().mean(1, keepdim=True)
        norm = torch.linalg.vector_norm(d, dim=1) / math.sqrt(max(n - 1, 1))

        return torch.cat([mean, norm.to(x.dtype)], -1) * self.gain
