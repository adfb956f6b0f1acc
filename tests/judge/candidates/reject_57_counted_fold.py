"""A fold keyed to identity and version of its sources: what PyTorch does not count is lost."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key, self.folded = None, None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or not bool(torch.isfinite(x).all()):
            return self.linear(x).sum(dim=1, keepdim=True)
        key = (w, w._version, w.data_ptr(), b, b._version, b.data_ptr())
        if self.key is None or any(p is not q and p != q for p, q in self.pairs(key)):
            self.folded = (w.double().sum(dim=0).to(w.dtype), b.double().sum().to(b.dtype))
            self.key = key
        return (x @ self.folded[0] + self.folded[1]).unsqueeze(1)

    def pairs(self, key):
        for new, old in zip(key, self.key, strict=True):
            if isinstance(new, torch.Tensor):
                yield id(new), id(old)
            else:
                yield new, old
