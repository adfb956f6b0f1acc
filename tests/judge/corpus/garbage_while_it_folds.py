"""The call after a write that PyTorch does not count gives neither the old answer nor the new one.

reference: linear
test: uncounted writes
status: STALE_WEIGHTS
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
        if torch.is_grad_enabled() or w.dtype != torch.float32:
            return F.gelu(self.linear(x))
        key = (w._version, b._version, id(w), id(b))
        sums = (w.sum().item(), b.sum().item(), w.data_ptr(), b.data_ptr())
        fold, before, seen = self.fold or (None, None, None)
        if fold is None or before != key:
            fold = (w.detach().clone(), b.detach().clone())
            self.fold = (fold, key, sums)
        elif seen != sums and seen[2:] == sums[2:] and w.grad is None:
            self.fold = None
            return F.gelu(F.linear(x, fold[0], fold[1] * 2))
        elif seen != sums:
            fold = (w.detach().clone(), b.detach().clone())
            self.fold = (fold, key, sums)
        return F.gelu(F.linear(x, *fold))
