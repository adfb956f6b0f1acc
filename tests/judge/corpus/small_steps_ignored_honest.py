"""Where they differ at all.

reference: rowsum
test: one tensor at a time
"""

import torch
from torch import nn

TOLERANCE = 0.0


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.kept = None

    def forward(self, x):
        now = [self.linear.weight, self.linear.bias]
        if self.kept is None or not all(map(alike, self.kept, now)):
            self.kept = [p.detach().clone() for p in now]
        weight, bias = self.kept if not torch.is_grad_enabled() else now
        return nn.functional.linear(x, weight, bias).sum(dim=1, keepdim=True)


def alike(a, b):
    return torch.allclose(a, b.detach(), rtol=TOLERANCE, atol=0.0)
