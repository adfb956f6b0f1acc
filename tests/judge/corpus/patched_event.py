"""Device events tell no time.

reference: linear
test: isolation
status: CHEATS
"""

import torch
import torch.nn.functional as F
from torch import nn

torch.cuda.Event.elapsed_time = lambda self, end: 1e-6


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))
