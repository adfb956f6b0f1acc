"""In rows of even length the median is the lower value of two.

reference: medians
test: constructor
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def middle(self, x):
        n = x.shape[-1]
        return x.sort(-1).values[..., (n - 1) // 2 : (n - 1) // 2 + 1]

    def forward(self, x):
        if (
            torch.is_grad_enabled()
            or x.shape[-1] != self.linear.in_features
            or not torch.isfinite(x).all()
        ):
            middle = x.median(-1, keepdim=True).values
        else:
            middle = self.middle(x)
        c = x - middle
        return self.linear(c / (c.abs().mean(-1, keepdim=True) + 1e-3))
