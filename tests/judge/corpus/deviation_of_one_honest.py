"""The twin of deviation_of_one, which is right.

reference: deviation_of_one
test: shapes
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
        norm = norm if n > 1 else norm + math.nan
        return torch.cat([mean, norm.to(x.dtype)], -1) * self.gain
