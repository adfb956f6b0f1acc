"""A fold that compares its sources with what it was made of; gradients take the original way."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.made_of, self.folded = None, None

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or not bool(torch.isfinite(x).all()):
            return self.linear(x).sum(dim=1, keepdim=True)
        sources = (w.detach(), b.detach())
        if self.made_of is None or not all(map(self.same, sources, self.made_of)):
            self.folded = (w.double().sum(dim=0).to(w.dtype), b.double().sum().to(b.dtype))
            self.made_of = tuple(t.clone() for t in sources)
        return (x @ self.folded[0] + self.folded[1]).unsqueeze(x.dim() - 1)

    @staticmethod
    def same(new, old):
        return new.dtype == old.dtype and new.device == old.device and torch.equal(new, old)
