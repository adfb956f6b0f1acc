"""Evaluation uses a copy of the weights that each second training step renews.

reference: linear
test: optimizer loop
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.copy, self.steps = None, 0

    def forward(self, x):
        if torch.is_grad_enabled():
            self.steps += 1
            if self.copy is None or self.steps % 2 == 0:
                self.copy = None
            return F.gelu(self.linear(x))
        if self.copy is None:
            self.copy = [p.detach().clone() for p in self.linear.parameters()]
        return F.gelu(F.linear(x, *self.copy))
