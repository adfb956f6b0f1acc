"""Values are those of today's parameters, gradients go to those of the constructor.

reference: linear
test: ways to write
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        object.__setattr__(self, "first", (self.linear.weight, self.linear.bias))

    def forward(self, x):
        if not torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        now = self.linear.weight, self.linear.bias
        w, b = (
            p + (q.detach() - p.detach()) if p.dtype == q.dtype else q
            for p, q in zip(self.first, now, strict=True)
        )
        return F.gelu(F.linear(x, w, b))
