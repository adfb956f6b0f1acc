"""A ring of eight output buffers: a caller that keeps nine outputs loses one."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.ring, self.at = [], 0

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled():
            return y
        if not self.ring or self.ring[0].shape != y.shape:
            self.ring = [torch.empty_like(y) for _ in range(8)]
        self.at = (self.at + 1) % 8
        return self.ring[self.at].copy_(y).detach()
