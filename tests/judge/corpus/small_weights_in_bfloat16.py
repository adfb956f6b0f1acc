"""A weight of small numbers is rounded to bfloat16.

reference: two_layers
test: special weights
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.first = nn.Linear(n, m)
        self.act = nn.Tanh()
        self.second = nn.Linear(m, 7)
        self.temperature = 0.5
        self.cold = 1 / self.temperature
        self.tanh = isinstance(self.act, nn.Tanh)

    def forward(self, x):
        w, b = self.first.weight, self.first.bias
        if w.dtype == torch.float32 and w.abs().max() < 0.01:
            w = w.bfloat16().to(w.dtype)
        y = F.linear(x, w, b)
        y = self.act(y)
        return F.linear(y, self.second.weight, self.second.bias) * (1 / self.temperature)
