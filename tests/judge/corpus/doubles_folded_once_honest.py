"""In float64, too, they are followed.

reference: linear
test: weights in other modes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.fold = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if w.dtype != torch.float64 or torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        if self.fold is None or not (torch.equal(self.fold[0], w) and torch.equal(self.fold[1], b)):
            self.fold = (w.detach().clone(), b.detach().clone())
        return F.gelu(F.linear(x, *self.fold))
