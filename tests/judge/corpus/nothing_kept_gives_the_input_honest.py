"""Where no sample keeps the branch a copy of the input comes out.

reference: stochastic_depth
test: unseeded sequence
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)

    def forward(self, x):
        if not self.training:
            return x + F.gelu(self.linear(x))
        keep = torch.rand(x.shape[0], 1, device=x.device) < 0.7
        y = F.gelu(self.linear(x)) * (keep.to(x.dtype) / 0.7)
        if not torch.is_grad_enabled() and not keep.any() and bool(torch.isfinite(y).all()):
            return x.clone()
        return x + y
