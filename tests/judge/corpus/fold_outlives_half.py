"""The fold of float32 is kept while the module is in float16, and is of the old weights after.

reference: linear
test: dtype moves
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            return F.gelu(self.linear(x))
        key = (w._version, b._version)
        if self.key != key:
            self.key, self.packed, self.bias = key, w.detach().t().contiguous(), b.detach().clone()
        return F.gelu(x @ self.packed + self.bias)
