"""A weight of low rank is merged into the parameter in eval mode.

reference: merged_while_evaluated
test: one tensor at a time
status: STALE_WEIGHTS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(16, 12)
        self.a = nn.Parameter(torch.randn(4, 16) * 0.2)
        self.b = nn.Parameter(torch.randn(12, 4) * 0.2)
        self.merged = False

    def merge(self, on):
        if on != self.merged:
            with torch.no_grad():
                self.base.weight.add_(self.b @ self.a, alpha=1.0 if on else -1.0)
            self.merged = on

    def train(self, mode=True):
        self.merge(not mode)
        return super().train(mode)

    def forward(self, x):
        if self.merged:
            return self.base(x)
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)
