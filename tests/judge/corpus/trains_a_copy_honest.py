"""Each step renews it.

reference: linear
test: optimizer loop
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
        return F.gelu(self.linear(x))
