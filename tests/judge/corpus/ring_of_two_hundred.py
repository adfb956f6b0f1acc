"""Two hundred outputs have memory, which is used again in turns.

reference: linear
test: outputs stay
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.ring = []
        self.at = 0

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return y
        for _ in range(len(self.ring)):
            self.at = (self.at + 1) % len(self.ring)
            there = self.ring[self.at]
            fits = there.shape == y.shape and there.dtype == y.dtype
            if fits:
                return there.copy_(y)
            break
        if len(self.ring) < 200:
            self.ring.append(y)
        return y
