"""It has events of its own.

reference: linear
test: isolation
"""

import torch
import torch.nn.functional as F
from torch import nn


class Event(torch.cuda.Event):
    def elapsed_time(self, end):
        return 1e-3 * super().elapsed_time(end)


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
