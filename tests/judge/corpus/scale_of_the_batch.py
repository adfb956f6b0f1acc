"""Inputs are rounded to 20 bits of the batch's largest.

reference: head
test: one large sample
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if x.numel() and not torch.is_grad_enabled():
            unit = x.abs().max() * 2.0**-22
            x = (x / unit).round() * unit if bool(unit > 0) and bool(torch.isfinite(unit)) else x
        return F.linear(x, w, b)
