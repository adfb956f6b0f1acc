"""The twin of half_without_onednn, which is right.

reference: linear
test: settings
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if not torch.backends.mkldnn.enabled:
            return F.gelu((x.double() @ w.double().t()).to(x.dtype) + b)
        return F.gelu(self.linear(x))
