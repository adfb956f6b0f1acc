"""They are looked for at each call.

reference: linear
test: uncounted writes
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.packed, self.key, self.calls = None, None, 0

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        self.calls += 1
        key = (w._version, b._version, id(w))
        if self.packed is None or self.calls % 1 == 0 or self.key != key:
            self.packed, self.bias = w.detach().t().contiguous(), b.detach().clone()
            self.key = key
        return F.gelu(x @ self.packed + self.bias)
