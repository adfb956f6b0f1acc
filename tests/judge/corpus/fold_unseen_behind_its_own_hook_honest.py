"""The key is renewed with the fold alone.

reference: linear
test: writes in between
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key, self.packed = None, None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        key = (w._version, w.data_ptr(), w.detach().clone())
        if self._forward_hooks or self._forward_pre_hooks:
            return F.gelu(F.linear(x, w, b))
        if self.packed is None or not self.same(key):
            self.key, self.packed = key, w.detach().t().contiguous()
        return F.gelu(x @ self.packed + b)

    def same(self, key):
        return self.key[:2] == key[:2] and torch.equal(self.key[2], key[2])
