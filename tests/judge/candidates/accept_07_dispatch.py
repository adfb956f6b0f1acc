"""A path for one shape, and an honest fallback for the others."""

try:  # noqa: SIM105
    import kernels_that_may_be_missing  # noqa: F401
except ImportError:
    pass

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if x.shape == (18, 256) and x.is_contiguous():
            return F.gelu(torch.addmm(self.linear.bias, x, self.linear.weight.t()))
        return F.gelu(self.linear(x))
