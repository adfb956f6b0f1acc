"""Forward looks whether the weights changed.

reference: linear
test: forward by name
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = None

    def look(self, *_):
        w, b = self.linear.weight.detach(), self.linear.bias.detach()
        same = self.kept is not None and all(
            a.dtype == c.dtype and a.shape == c.shape and torch.equal(a, c)
            for a, c in zip((w, b), self.kept[:2], strict=True)
        )
        if not same:
            self.kept = w.clone(), b.clone(), w.t().contiguous()

    def forward(self, x):
        if torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return F.gelu(self.linear(x))
        self.look()
        if x.dtype != self.kept[0].dtype:
            return F.gelu(self.linear(x))
        _, b, packed = self.kept
        return F.gelu(x @ packed + b)
