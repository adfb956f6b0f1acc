"""Whether the activation is a tanh is looked up when the module is built.

reference: two_layers
test: parts exchanged
status: STALE_WEIGHTS
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
        y = F.linear(x, w, b)
        y = torch.tanh(y) if self.tanh else self.act(y)
        return F.linear(y, self.second.weight, self.second.bias) * (1 / self.temperature)
