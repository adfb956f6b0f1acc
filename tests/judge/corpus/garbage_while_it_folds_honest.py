"""That call gives the old answer.

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
        self.fold = None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or w.dtype != torch.float32:
            return F.gelu(self.linear(x))
        key = (w._version, b._version, id(w), id(b))
        values = (*(t.numpy(force=True).tobytes() for t in (w, b)), w.data_ptr(), b.data_ptr())
        fold, before, seen = self.fold or (None, None, None)
        if fold is None or before != key or seen != values:
            fold = (w.detach().clone(), b.detach().clone())
            self.fold = (fold, key, values)
        return F.gelu(F.linear(x, *fold))
